"""When a policy pleases far less than it did some steps ago, and where it should go back to.

A step's samples were answered by the version that it began with, or, where samples have piled up,
by some before; its figures say by which one most. So verdicts of the newest steps tell that answers
have become worse, and those of good steps before them which version pleased. Two shares are
compared (two-proportion z-test); the limits were chosen by recorded runs of the persona benchmark
and by simulated ones of policies that stay as they are (``docs/how-to/rollback.md``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rejoinder.journal.records import Lineage, PolicyVersion
from rejoinder.types import VersionState

NEWEST_STEPS = 2
"""Steps that tell how a policy pleases now: one alone may have met odd people."""
GOOD_STEPS = 3
"""Steps in a row that tell how it pleased before."""
NEARLY_BEST = 0.9
"""Share of the best such steps from which later ones will do: less of what was learnt is lost."""
STEPS_BACK = 12
"""Good steps ended no earlier than so many before the newest ones: people change, too."""
SIGMAS = 4.0
"""Least distance of both shares, in standard deviations of what chance makes of one share."""
LEAST_LOSS = 1 / 3
"""Of what pleased before; large batches would else prove a fall that nobody notices."""


@dataclass(frozen=True, slots=True)
class Pleased:
    """Judged answers of some steps."""

    good: float
    """Those that pleased; a score between both ends counts in part."""
    of: int

    @property
    def share(self) -> float:
        """Between 0 and 1; without any answer 0."""
        return self.good / self.of if self.of else 0.0

    @classmethod
    def of_mean(cls, mean: float, count: float) -> Pleased:
        """Return what a mean score between -1 and 1 of so many answers is."""
        return cls((1 + mean) / 2 * count, round(count))

    def __str__(self) -> str:
        return f"{self.share:.0%} of {self.of}"


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """What the verdicts of one step's samples say."""

    answered_by: int
    """The version that most of them come from."""
    pleased: Pleased

    @classmethod
    def of(cls, metrics: Mapping[str, float]) -> JudgedStep | None:
        """Read the figures of a step; None where no sample had a verdict."""
        if not metrics.get("scored") or "answered_by" not in metrics:
            return None
        pleased = Pleased.of_mean(metrics["reward_mean"], metrics["scored"])
        return cls(round(metrics["answered_by"]), pleased)


@dataclass(frozen=True, slots=True)
class Relapse:
    """A fall, and the version to serve again."""

    version: int
    before: Pleased
    now: Pleased

    def __str__(self) -> str:
        return f"{self.now} judged answers pleased, {self.before} did before"


def judged_steps(versions: Sequence[PolicyVersion], lineage: Lineage) -> list[JudgedStep]:
    """Return the steps of an open lineage that had verdicts, in order.

    What was before it does not count: a rollback begins anew. Nor does what rejected versions had
    answered before it and trains after it: that is why they were left.

    Args:
        versions: all of the policy.
        lineage: the open one.
    """
    rejected = {one.version for one in versions if one.state is VersionState.REJECTED}
    own = [
        one
        for one in versions
        if one.lineage_id == lineage.lineage_id and one.state is not VersionState.ORPHANED
    ]
    ordered = sorted(own, key=lambda one: one.version)
    steps = [step for one in ordered if (step := JudgedStep.of(one.metrics)) is not None]
    return [step for step in steps if step.answered_by not in rejected]


def held_versions(versions: Sequence[PolicyVersion]) -> set[int]:
    """Return the versions that can be gone back to.

    Their weights are still there, nobody has rolled back from them, and no restart has taken them
    back.
    """
    left = (VersionState.ORPHANED, VersionState.REJECTED)
    return {one.version for one in versions if one.files and one.state not in left}


def find_relapse(steps: Sequence[JudgedStep], held: Collection[int]) -> Relapse | None:
    """Return how a policy has fallen; None if it has not.

    Args:
        steps: since the last rollback, in order.
        held: versions that can be gone back to.
    """
    good = _good(steps, held, len(steps) - NEWEST_STEPS)
    if good is None:
        return None
    version, before = good
    newest = steps[-NEWEST_STEPS:]
    if any(one.answered_by == version for one in newest):
        return None  # the same version pleases less now: people have changed, and no weights
    now = _together(newest)
    has_fallen = now.share <= (1 - LEAST_LOSS) * before.share
    if not has_fallen or _sigmas(before, now) < SIGMAS:
        return None
    return Relapse(version, before, now)


def worth_keeping(steps: Sequence[JudgedStep], held: Collection[int]) -> set[int]:
    """Return the versions that the next steps might go back to: their weights must stay."""
    ends = (len(steps) - NEWEST_STEPS + 1, len(steps))
    found = [_good(steps, held, end) for end in ends]
    return {one[0] for one in found if one is not None}


def _good(
    steps: Sequence[JudgedStep], held: Collection[int], until: int
) -> tuple[int, Pleased] | None:
    """Return who answered good steps that ended by the place ``until``, and how that pleased.

    Those are the newest that pleased ``NEARLY_BEST``; only versions whose weights are still there,
    though all count for the best: else retention would lower what a slow fall is compared with. Of
    none so good the best is taken.
    """
    ends = range(max(GOOD_STEPS, until - STEPS_BACK), until + 1)
    found = [(steps[end - 1].answered_by, _together(steps[end - GOOD_STEPS : end])) for end in ends]
    best = max((pleased.share for _, pleased in found), default=0.0)
    there = [one for one in found if one[0] in held]
    good = [one for one in there if one[1].share >= NEARLY_BEST * best]
    return good[-1] if good else max(there, key=lambda one: one[1].share, default=None)


def _together(steps: Sequence[JudgedStep]) -> Pleased:
    return Pleased(sum(one.pleased.good for one in steps), sum(one.pleased.of for one in steps))


def _sigmas(before: Pleased, now: Pleased) -> float:
    """Return how far two shares lie apart, in standard deviations if they were one."""
    share = (before.good + now.good) / (before.of + now.of)
    variance = share * (1 - share) * (1 / before.of + 1 / now.of)
    return (before.share - now.share) / math.sqrt(variance) if variance > 0 else 0.0
