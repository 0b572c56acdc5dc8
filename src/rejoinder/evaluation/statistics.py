"""Shares with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


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
