"""The launcher seam: who starts the roles, watches them and starts them again."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """One role to run."""

    name: str
    """``gateway``, ``engine``, ``judge`` or ``trainer``; also its command."""
    listener: socket.socket | None = None
    """Bound and listening; stays open while the role is away, so that callers wait in its queue
    instead of being refused."""
    stops_last: bool = False
    """Others need it while they finish their work."""


@dataclass(frozen=True, slots=True)
class RoleEnded:
    """A role ended without being told to."""

    name: str
    pid: int
    exit_code: int
    """Negative: the number of the signal that killed it."""
    lives: int
    """How often it had been started."""
    lived_s: float
    restart_in_s: float

    @property
    def cause(self) -> str:
        """How it ended, in words."""
        if self.exit_code < 0:
            return f"was killed by signal {-self.exit_code}"
        return f"ended with exit code {self.exit_code}"


@dataclass(frozen=True, slots=True)
class RoleRunning:
    """What a launcher knows of a role now."""

    name: str
    pid: int | None
    """None while it waits to be started again."""
    restarts: int


class Launcher(Protocol):
    """Runs roles until it is told to stop."""

    def start(self, roles: Sequence[RoleSpec]) -> None:
        """Start every role; called once."""
        ...

    def watch(self) -> list[RoleEnded]:
        """Return the roles that ended since the last call, and restart those whose time has come.

        Never waits; to be called several times a second.
        """
        ...

    def running(self) -> list[RoleRunning]:
        """Return the state of every role."""
        ...

    def stop(self, grace_s: float) -> None:
        """End all roles: politely, and after ``grace_s`` by force. Only what this object started.

        Safe to call again from a second interrupt; it then ends by force at once.
        """
        ...
