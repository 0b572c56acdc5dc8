"""Shares and their intervals."""

from __future__ import annotations

import math

import pytest

from rejoinder.evaluation.statistics import Share


@pytest.mark.parametrize(("hits", "of"), [(0, 10), (1, 7), (5, 10), (10, 10), (180, 200)])
def test_the_wilson_interval_holds_the_rates_that_the_observation_does_not_reject(
    hits: int, of: int
) -> None:
    # At either end the observed share lies exactly 1.96 standard deviations of that rate away.
    for end in Share(hits, of).interval:
        distance = (hits / of - end) ** 2
        assert distance == pytest.approx(1.959964**2 * end * (1 - end) / of, abs=1e-6)


def test_the_wilson_interval_at_known_points() -> None:
    assert Share(0, 10).interval == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert Share(5, 10).interval == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_nothing_counted_says_nothing() -> None:
    assert Share(0, 0).interval == (0.0, 1.0)
    assert math.isnan(Share(0, 0).value)


def test_counting_and_text() -> None:
    share = Share.count([True, False, True, True])
    assert share == Share(3, 4)
    assert str(share) == "0.75 (3 of 4, 95 % 0.30 to 0.95)"
