"""Agents for the command line, each in a home of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from client_kit import client_environment

COMMAND_S = 300.0


@dataclass
class CommandLine:
    """Runs an agent's program; its settings and its work lie in ``home``."""

    program: Path
    home: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables."""

    def __post_init__(self) -> None:
        (self.home / "work").mkdir(parents=True)

    def run(self, *arguments: str) -> str:
        """Run one command to its end; returns what it printed."""
        done = subprocess.run(
            [self.program, *arguments],
            env=client_environment(HOME=str(self.home), **self.settings),
            cwd=self.home / "work",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()
