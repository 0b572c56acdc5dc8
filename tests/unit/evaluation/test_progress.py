"""Several runs are shown as one."""

from __future__ import annotations

from rejoinder.evaluation.progress import Snapshot, Together
from rejoinder.evaluation.statistics import Share


class Seen:
    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    def show(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)


def test_runs_side_by_side_are_summed_and_those_not_yet_heard_of_are_expected() -> None:
    seen = Seen()
    together = Together(seen, 3)
    first, second = together.one(), together.one()
    first.show(Snapshot("learning", 1, 4, 20, Share(3, 5), Share(4, 5)))
    second.show(Snapshot("heldout", 9, 48))
    second.show(Snapshot("learning", 2, 4, 30, Share(1, 5), Share(5, 5)))
    first.show(Snapshot("learning", 3, 4, 50, Share(5, 5), Share(5, 5)))
    assert seen.snapshots[0].of == seen.snapshots[-1].of == 12
    assert len(seen.snapshots) == 3, "measurements in between are not told"
    last = seen.snapshots[-1]
    assert (last.phase, last.done, last.samples) == ("learning", 5, 80)
    assert (last.satisfied, last.agreement) == (Share(6, 10), Share(10, 10))
