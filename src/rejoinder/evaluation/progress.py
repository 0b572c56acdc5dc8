"""How a run stands, for whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rejoinder.evaluation.statistics import Share


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of learning, for whoever watches."""

    phase: str
    """One of those that ``live_view.py`` has a title for."""
    done: int
    """Answers measured, or updates made."""
    of: int
    samples: int = 0
    """Used by updates or waiting for one."""
    satisfied: Share = Share(0, 0)  # noqa: RUF009  (frozen)
    """Of the newest training answers, by the person's true opinion."""
    agreement: Share = Share(0, 0)  # noqa: RUF009  (frozen)
    """Of verdicts with the person's true opinion: measured, never used."""


class Watcher(Protocol):
    """Shows a run as it goes."""

    def show(self, snapshot: Snapshot) -> None:
        """Take notice of a new state; called about once a second."""
        ...
