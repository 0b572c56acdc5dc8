"""A real gateway in a process of its own, with the scripted engine and a temporary home."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType

import psutil

START_S = 60.0
CONFIG = """
home = "{home}"
log_level = "warning"
[gateway]
port = {port}
workers = {workers}
max_concurrent = 4096
max_queued = 4096
[engine]
{engine}
"""
SCRIPTED = """
kind = "scripted"
answer = "{answer}"
context_length = 32768
"""
BESIDE = """
kind = "torch"
port = {port}
"""


def scripted(answer: str) -> str:
    """Return the configuration of an engine inside the gateway that always answers so."""
    return SCRIPTED.format(answer=answer)


def beside(port: int) -> str:
    """Return the configuration of an engine that serves the engine protocol on a port."""
    return BESIDE.format(port=port)


class GatewayProcess:
    """Starts ``rejoinder gateway`` and waits until it is ready; stops it on leaving."""

    def __init__(self, engine: str, workers: int = 1) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="rejoinder-bench-")
        self.home = Path(self._directory.name)
        self.port = free_port()
        config = self.home / "rejoinder.toml"
        config.write_text(
            CONFIG.format(home=self.home, port=self.port, engine=engine, workers=workers)
        )
        command = [sys.executable, "-m", "rejoinder", "--config", str(config), "gateway"]
        self._process = subprocess.Popen(command)

    def __enter__(self) -> GatewayProcess:
        deadline = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2):
                    return self
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("the gateway did not get ready; see its log above") from None
                time.sleep(0.1)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._directory.cleanup()

    def rss(self) -> int:
        """Return the resident bytes of the gateway, workers included."""
        process = psutil.Process(self._process.pid)
        return sum(p.memory_info().rss for p in (process, *process.children(recursive=True)))

    def cpu_seconds(self) -> float:
        """Return the processor time that the gateway has used."""
        process = psutil.Process(self._process.pid)
        times = [p.cpu_times() for p in (process, *process.children(recursive=True))]
        return float(sum(t.user + t.system for t in times))

    def count(self, query: str) -> int:
        """Return the number a query of the journal gives."""
        database = sqlite3.connect(f"file:{self.home / 'journal.db'}?mode=ro", uri=True)
        try:
            return int(database.execute(query).fetchone()[0])
        finally:
            database.close()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
