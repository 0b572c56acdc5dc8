"""How a run stands, for whoever shows it."""

from __future__ import annotations

from collections.abc import Iterable
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


class Together:
    """Shows several runs as one: sums of what each has done."""

    def __init__(self, watcher: Watcher, runs: int) -> None:
        self._watcher = watcher
        self._runs = runs
        self._given = 0
        self._newest: dict[int, Snapshot] = {}

    def one(self) -> Watcher:
        """Return what one more of the runs is to tell."""
        self._given += 1
        return _OneOf(self, self._given)

    def tell(self, number: int, snapshot: Snapshot) -> None:
        """Take notice of one run's new state."""
        self._newest[number] = snapshot
        known = self._newest.values()
        self._watcher.show(
            Snapshot(
                "learning",
                done=sum(one.done for one in known),
                of=sum(one.of for one in known) * self._runs // len(known),
                samples=sum(one.samples for one in known),
                satisfied=_sum(one.satisfied for one in known),
                agreement=_sum(one.agreement for one in known),
            )
        )


class _OneOf:
    """Implements ``Watcher``."""

    def __init__(self, together: Together, number: int) -> None:
        self._together = together
        self._number = number

    def show(self, snapshot: Snapshot) -> None:
        """See ``Watcher.show``. Measurements in between are not told."""
        if snapshot.phase == "learning":
            self._together.tell(self._number, snapshot)


def _sum(shares: Iterable[Share]) -> Share:
    known = list(shares)
    return Share(sum(one.hits for one in known), sum(one.of for one in known))
