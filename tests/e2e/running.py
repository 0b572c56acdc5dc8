"""``rejoinder up`` as a process of its own, in a home of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-P", "-m", "rejoinder")
READY_S = 180.0
"""On a loaded machine with two cores; a first start converts the model, too."""


def rejoinder(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def environment(home: Path) -> dict[str, str]:
    """Return this process's environment without settings of the machine's user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REJOINDER_")}
    if "REJOINDER_CACHE" in os.environ:  # converted models are shared
        kept["REJOINDER_CACHE"] = os.environ["REJOINDER_CACHE"]
    return kept | {"REJOINDER_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "200"}


class Running:
    """The whole system; ``close`` ends it as Ctrl-C would."""

    def __init__(self, home: Path, config: str) -> None:
        self.home = home
        (home / "rejoinder.toml").write_text(config)
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [*COMMAND, "up"],
            cwd=home,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            wait_until(lambda: self._address() is not None or self._ended(), READY_S, self.story)
        except BaseException:
            self.close()
            raise
        found = self._address()
        assert found is not None, self.story()
        self.url = found

    def status(self) -> Any:
        """Return the document of ``rejoinder status --json``."""
        done = rejoinder(self.home, "status", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def pids(self) -> dict[str, int]:
        """Return the process that reports itself as each role now."""
        living = [one for one in self.status()["roles"] if one["fresh"] and _is_alive(one["pid"])]
        living.sort(key=lambda one: -one["seen_s"])
        return {one["role"]: int(one["pid"]) for one in living}

    def close(self) -> int:
        """End the system; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(90)
        self._reader.join(10)
        return code

    def story(self) -> str:
        """Return what the system and its roles said, for a failed assertion."""
        logs = sorted((self.home / "logs").glob("*.log"))
        parts = ["".join(self.lines), *(f"{log.name}:\n{log.read_text()[-2000:]}" for log in logs)]
        return "\n".join(parts)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def _address(self) -> str | None:
        found = re.search(r"ready at (http://\S+)/v1", "".join(self.lines))
        return found.group(1) if found else None

    def _ended(self) -> bool:
        return self.process.poll() is not None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(
    condition: Callable[[], object], seconds: float, story: Callable[[], str] = str
) -> None:
    """Wait for something that must come; the time is a limit, not a measurement."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s\n{story()}"
        time.sleep(0.2)
