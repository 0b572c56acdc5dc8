"""Log files of roles: appended to by the role itself, turned over by whoever watches it.

A role writes straight into its file, never through a pipe, so that it cannot be held up by its
supervisor. Turning over copies the file and then cuts it, since the role keeps it open; a line
written in between may be lost. Nothing but reading by people hangs on these files.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import IO

MAX_BYTES = 10 << 20
KEPT = 3
"""Older copies: ``ROLE.log.1`` is the newest of them."""
_TAIL_BYTES = 8192


class RoleLog:
    """One role's log file."""

    def __init__(self, directory: Path, role: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{role}.log"

    def open(self) -> IO[bytes]:
        """Open for appending; the file is readable by its owner only, like the journal."""
        self.path.touch(mode=0o600)
        return self.path.open("ab")

    def turn_over(self) -> None:
        """Start the file anew if it has grown too long."""
        if not self.path.exists() or self.path.stat().st_size < MAX_BYTES:
            return
        for number in range(KEPT, 1, -1):
            older = self._copy(number - 1)
            if older.exists():
                older.replace(self._copy(number))
        shutil.copyfile(self.path, self._copy(1))
        self._copy(1).chmod(0o600)
        with self.path.open("r+b") as file:
            file.truncate(0)

    def last_line(self) -> str:
        """Return the last line that is not empty; the empty string if there is none."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _copy(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
