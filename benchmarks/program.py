"""A program that a benchmark starts, waits for and stops."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType


class Program:
    """Runs while the block does; entering it waits until ``ready_url`` answers with 200."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        ready_url: str,
        *,
        seconds: float = 180.0,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        self._name = name
        self._ready_url = ready_url
        self._seconds = seconds
        self._log = log
        out = None if log is None else log.open("wb")
        self._process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **(environment or {})}
        )

    def __enter__(self) -> Program:
        deadline = time.monotonic() + self._seconds
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._stop()
                said = "" if self._log is None else self._log.read_text(errors="replace")[-4000:]
                raise SystemExit(f"the {self._name} did not get ready\n{said}")
            time.sleep(0.2)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(self._ready_url, timeout=2):
                return True
        except OSError:
            return False

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
