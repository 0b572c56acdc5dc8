"""Shares and their intervals."""

from __future__ import annotations

import math

import pytest

from rejoinder.evaluation.statistics import (
    Duration,
    Estimate,
    Share,
    common_horizon,
    mean_over_runs,
    ratio_of_means,
    restricted,
)


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


def test_one_run_has_a_mean_and_no_spread() -> None:
    assert mean_over_runs([4.0]) == Estimate(4.0, None, None)
    assert str(mean_over_runs([4.0])) == "4.00"


def test_runs_that_agree_have_an_interval_of_no_width() -> None:
    assert mean_over_runs([2.0, 2.0, 2.0]) == Estimate(2.0, 2.0, 2.0)


def test_the_bootstrap_of_two_runs_holds_both_ends_with_a_quarter_each() -> None:
    # Of the four equally likely resamples of (0, 1), one is all 0 and one all 1.
    assert mean_over_runs([0.0, 1.0]) == Estimate(0.5, 0.0, 1.0)


def test_the_bootstrap_of_many_runs_comes_near_the_normal_interval() -> None:
    values = [float(number % 10) for number in range(100)]
    found = mean_over_runs(values)
    half = 1.959964 * math.sqrt(sum((value - 4.5) ** 2 for value in values) / 100) / 10
    assert found.value == 4.5
    assert found.low == pytest.approx(4.5 - half, abs=0.03)
    assert found.high == pytest.approx(4.5 + half, abs=0.03)


def test_a_paired_ratio_has_no_spread_where_every_pair_has_the_same_one() -> None:
    found = ratio_of_means([1.0, 5.0, 20.0], [2.0, 10.0, 40.0])
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))


def test_a_ratio_of_means_is_not_a_mean_of_ratios() -> None:
    assert ratio_of_means([10.0, 30.0], [10.0, 10.0]).value == 2.0
    assert ratio_of_means([10.0, 30.0], [5.0, 35.0]).value == 1.0


@pytest.mark.parametrize(("values", "references"), [([], []), ([1.0], [1.0, 2.0]), ([1.0], [0.0])])
def test_a_ratio_without_sense_is_refused(values: list[float], references: list[float]) -> None:
    with pytest.raises(ValueError, match=r"ratio|above zero"):
        ratio_of_means(values, references)


def test_a_mean_of_no_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="no runs"):
        mean_over_runs([])


def test_the_horizon_is_the_shortest_wait_in_vain() -> None:
    done, waited, longer = Duration(90, True), Duration(50, False), Duration(70, False)
    assert common_horizon([done, waited, longer]) == 50
    assert [restricted(one, 50) for one in (done, waited, longer)] == [50, 50, 50]
    assert restricted(Duration(20, True), 50) == 20


def test_without_a_wait_in_vain_nothing_is_restricted() -> None:
    done = [Duration(9, True), Duration(4, True)]
    assert common_horizon(done) == 9
    assert [restricted(one, 9) for one in done] == [9, 4]


def test_a_run_that_was_not_watched_to_the_horizon_says_nothing_there() -> None:
    with pytest.raises(ValueError, match="watched for 30"):
        restricted(Duration(30, False), 40)
