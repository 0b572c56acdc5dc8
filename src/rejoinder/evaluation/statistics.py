"""Shares and means with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""
DRAWS = 10_000
"""Resamples of a bootstrap; they are seeded, so that a report says the same each time."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many of how many, and the 95 % interval of the underlying rate."""

    hits: int
    of: int

    @classmethod
    def count(cls, outcomes: Iterable[bool]) -> Share:
        """Count the true ones."""
        known = list(outcomes)
        return cls(sum(known), len(known))

    @property
    def value(self) -> float:
        """The observed share; nan of nothing."""
        return self.hits / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The Wilson score interval (E. B. Wilson, JASA 22, 1927); (0, 1) of nothing."""
        if not self.of:
            return 0.0, 1.0
        n, p, zz = self.of, self.value, Z_95 * Z_95
        middle = (p + zz / (2 * n)) / (1 + zz / n)
        half = Z_95 / (1 + zz / n) * math.sqrt(p * (1 - p) / n + zz / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.2f} ({self.hits} of {self.of}, 95 % {low:.2f} to {high:.2f})"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over several runs, and the 95 % interval of it; one run alone has no spread."""

    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def mean_over_runs(values: Sequence[float]) -> Estimate:
    """Return the mean and its percentile bootstrap interval over runs (B. Efron, 1979).

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a mean of no runs")
    means = np.asarray(values, dtype=np.float64)[_resamples(len(values))].mean(axis=1)
    return _estimate(sum(values) / len(values), means, len(values))


def ratio_of_means(values: Sequence[float], references: Sequence[float]) -> Estimate:
    """Return mean(values) / mean(references) with a paired bootstrap interval.

    Args:
        values: of one method, by run.
        references: of another, in the same order: run i of both shares its seed, and a resample
            draws both or neither.

    Raises:
        ValueError: the lengths differ, there are no values, or a reference is not above zero.
    """
    if len(values) != len(references) or not values:
        raise ValueError("a paired ratio needs as many values as references, and at least one")
    if min(references) <= 0:
        raise ValueError("references must be above zero")
    drawn = _resamples(len(values))
    tops = np.asarray(values, dtype=np.float64)[drawn].mean(axis=1)
    bottoms = np.asarray(references, dtype=np.float64)[drawn].mean(axis=1)
    return _estimate(sum(values) / sum(references), tops / bottoms, len(values))


@dataclass(frozen=True, slots=True)
class Duration:
    """How long something took, or how long one has waited for it in vain."""

    length: int
    happened: bool
    """Whether it happened at ``length``; otherwise the watching ended there (censored)."""


def common_horizon(durations: Sequence[Duration]) -> int:
    """Return how long all runs were watched: up to there, no censoring hides anything.

    The shortest wait in vain; where there is none, the longest duration.
    """
    vain = [one.length for one in durations if not one.happened]
    return min(vain) if vain else max((one.length for one in durations), default=0)


def restricted(duration: Duration, horizon: int) -> int:
    """Return min(length, horizon): its mean over runs is the restricted mean up to the horizon.

    Raises:
        ValueError: the run was not watched that long, so that the minimum is not known.
    """
    if not duration.happened and duration.length < horizon:
        raise ValueError(f"watched for {duration.length}, which is less than {horizon}")
    return min(duration.length, horizon)


def _resamples(count: int) -> npt.NDArray[np.int64]:
    """[DRAWS, count] indices drawn with replacement."""
    return np.random.default_rng(0).integers(0, count, size=(DRAWS, count))


def _estimate(value: float, drawn: npt.NDArray[np.float64], runs: int) -> Estimate:
    if runs < 2:
        return Estimate(value, None, None)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Estimate(value, float(low), float(high))
