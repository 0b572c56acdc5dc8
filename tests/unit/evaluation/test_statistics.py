"""Shares and their intervals."""

from __future__ import annotations

import math
import random

import pytest

from rejoinder.evaluation.statistics import (
    Duration,
    Estimate,
    Share,
    mean_over_runs,
    ratio_of_means,
    restricted,
    t_95,
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


@pytest.mark.parametrize("values", [[4.0], [3.0, 5.0]])
def test_fewer_than_three_runs_have_a_mean_and_no_interval(values: list[float]) -> None:
    assert mean_over_runs(values, 0.0, 9.0) == Estimate(4.0, None, None)
    assert ratio_of_means(values, values) == Estimate(1.0, None, None)
    assert str(mean_over_runs(values, 0.0, 9.0)) == "4.00"


def test_runs_that_agree_tell_nothing_of_their_spread() -> None:
    assert mean_over_runs([0.3, 0.3, 0.3], 0.0, 1.0).low is None
    assert ratio_of_means([1.0, 5.0, 20.0], [2.0, 10.0, 40.0]) == Estimate(0.5, None, None)


def test_the_t_interval_of_three_runs_worked_out_by_hand() -> None:
    # Mean 2, standard deviation 1; t of 2 degrees of freedom is 4.3027.
    found = mean_over_runs([1.0, 2.0, 3.0], -9.0, 9.0)
    assert (found.low, found.high) == pytest.approx(
        (2 - 4.3027 / math.sqrt(3), 2 + 4.3027 / math.sqrt(3)), abs=1e-4
    )


def test_no_interval_leaves_what_can_be() -> None:
    found = mean_over_runs([0.1, 0.5, 0.9], 0.0, 1.0)
    assert (found.low, found.high) == (0.0, 1.0)


@pytest.mark.parametrize("freedom", [2, 3, 4, 10, 30, 31, 60])
def test_the_quantiles_of_t_hold_95_percent_of_its_density(freedom: int) -> None:
    steps = 20_000
    end = t_95(freedom)
    scale = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
    middles = ((number + 0.5) * end / steps for number in range(steps))
    density = sum((1 + x * x / freedom) ** (-(freedom + 1) / 2) for x in middles)
    assert 2 * scale * density * end / steps == pytest.approx(0.95, abs=2e-5)


@pytest.mark.parametrize("runs", [3, 4, 5])
def test_the_intervals_of_few_runs_hold_the_truth_as_often_as_they_say(runs: int) -> None:
    rng = random.Random(runs)
    tries = 3000
    means = ratios = 0
    for _ in range(tries):
        values = [rng.gauss(80, 12) for _ in range(runs)]
        references = [rng.gauss(100, 15) for _ in range(runs)]
        mean, ratio = mean_over_runs(values, 0, 999), ratio_of_means(values, references)
        assert mean.low is not None
        assert mean.high is not None
        assert ratio.low is not None
        assert ratio.high is not None
        means += mean.low <= 80 <= mean.high
        ratios += ratio.low <= 0.8 <= ratio.high
    assert means / tries == pytest.approx(0.95, abs=0.015)
    assert ratios / tries == pytest.approx(0.95, abs=0.02)


def test_a_ratio_of_means_is_not_a_mean_of_ratios() -> None:
    assert ratio_of_means([10.0, 30.0], [10.0, 10.0]).value == 2.0
    assert ratio_of_means([10.0, 30.0], [5.0, 35.0]).value == 1.0


@pytest.mark.parametrize(
    ("values", "references"), [([], []), ([1.0], [1.0, 2.0]), ([1.0], [0.0]), ([0.0], [1.0])]
)
def test_a_ratio_without_sense_is_refused(values: list[float], references: list[float]) -> None:
    with pytest.raises(ValueError, match=r"ratio|above zero"):
        ratio_of_means(values, references)


def test_a_mean_of_no_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="no runs"):
        mean_over_runs([], 0.0, 1.0)


def test_a_wait_is_restricted_to_the_horizon() -> None:
    assert restricted(Duration(90, True), 50) == 50
    assert restricted(Duration(50, False), 50) == 50
    assert restricted(Duration(20, True), 50) == 20


def test_a_run_that_was_not_watched_to_the_horizon_says_nothing_there() -> None:
    with pytest.raises(ValueError, match="watched for 30"):
        restricted(Duration(30, False), 40)
