"""The order of the doctor's checks, and what a check returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum

from rejoinder.config import Config
from rejoinder.errors import RejoinderError
from rejoinder.types import Json


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    """Works, but slower, smaller or less than it could."""
    FAIL = "fail"
    """Must be changed before the system can work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    name: str
    state: State
    text: str
    remedy: str = ""
    """What to do; empty where all is well."""

    def plain(self) -> Json:
        """Return it as JSON values."""
        return asdict(self)


Check = Callable[[Config], Iterator[Finding]]


def ok(name: str, text: str) -> Finding:
    """Return a good finding."""
    return Finding(name, State.OK, text)


def warn(name: str, text: str, remedy: str) -> Finding:
    """Return a finding that is worth a word."""
    return Finding(name, State.WARN, text, remedy)


def fail(name: str, text: str, remedy: str) -> Finding:
    """Return a finding that stops the system."""
    return Finding(name, State.FAIL, text, remedy)


def run_checks(config: Config) -> Iterator[Finding]:
    """Yield what each check finds, as soon as it is known.

    An error that a room raises on purpose is that check's failure, and its message the remedy.
    """
    from rejoinder.cli import checkup_machine, checkup_model, checkup_system

    for module in (checkup_machine, checkup_model, checkup_system):
        for name, check in module.CHECKS.items():
            try:
                yield from check(config)
            except RejoinderError as error:
                yield fail(name, "does not work", str(error))
