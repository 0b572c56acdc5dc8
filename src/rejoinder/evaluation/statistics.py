"""Shares and means with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""
MIN_RUNS = 3
"""Below that, the spread of runs is not known well enough for any interval."""
_T_95 = (
    4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
    2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024,
    2.085963, 2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831, 2.048407,
    2.045230, 2.042272,
)  # fmt: skip
"""Two-sided 95 % quantiles of Student's t for 2, 3, ... degrees of freedom."""


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
    """A figure over several runs, and the 95 % interval of it where there are enough runs."""

    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def mean_over_runs(values: Sequence[float], low: float, high: float) -> Estimate:
    """Return the mean and its t interval over runs (Student, 1908).

    Runs that all found the same tell nothing of their spread: no interval.

    Args:
        values: by run.
        low: least value that can be.
        high: largest one; the interval is cut there.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a mean of no runs")
    mean = sum(values) / len(values)
    half = _half_width([value - mean for value in values])
    if half is None:
        return Estimate(mean, None, None)
    return Estimate(mean, max(low, mean - half), min(high, mean + half))


def ratio_of_means(values: Sequence[float], references: Sequence[float]) -> Estimate:
    """Return mean(values) / mean(references) with a t interval over pairs.

    The interval is one of the ratio's logarithm, whose variance is that of the pairs' deviations
    from the ratio (the delta method).

    Args:
        values: of one method, by run.
        references: of another, in the same order: run i of both shares its seed.

    Raises:
        ValueError: the lengths differ, there are no values, or one is not above zero.
    """
    if len(values) != len(references) or not values:
        raise ValueError("a paired ratio needs as many values as references, and at least one")
    if min(*values, *references) <= 0:
        raise ValueError("values and references must be above zero")
    ratio = sum(values) / sum(references)
    half = _half_width(
        [value - ratio * other for value, other in zip(values, references, strict=True)]
    )
    if half is None:
        return Estimate(ratio, None, None)
    factor = math.exp(half / (sum(values) / len(values)))
    return Estimate(ratio, ratio / factor, ratio * factor)


def t_95(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t for at least 2 degrees of freedom."""
    if freedom - 2 < len(_T_95):
        return _T_95[freedom - 2]
    z = Z_95  # the expansion of Cornish and Fisher
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


@dataclass(frozen=True, slots=True)
class Duration:
    """How long something took, or how long one has waited for it in vain."""

    length: int
    happened: bool
    """Whether it happened at ``length``; otherwise the watching ended there (censored)."""


def restricted(duration: Duration, horizon: int) -> int:
    """Return min(length, horizon): its mean over runs is the restricted mean up to the horizon.

    Raises:
        ValueError: the run was not watched that long, so that the minimum is not known.
    """
    if not duration.happened and duration.length < horizon:
        raise ValueError(f"watched for {duration.length}, which is less than {horizon}")
    return min(duration.length, horizon)


def _half_width(deviations: Sequence[float]) -> float | None:
    """Return half of the t interval of the mean of what deviates so; None: it has none."""
    count = len(deviations)
    square = sum(deviation**2 for deviation in deviations)
    if count < MIN_RUNS or math.isclose(square, 0.0, abs_tol=1e-18):
        return None
    return t_95(count - 1) * math.sqrt(square / (count - 1) / count)
