"""One denominator per step, for every term and however the step is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.trainer.aggregation import Aggregation, token_weights

MODES: list[Aggregation] = ["turn_mean", "token_mean", "trajectory_mean"]


def test_turn_mean_counts_each_turn_alike() -> None:  # B079: 0 and not -0.6
    lengths, advantages = [2, 8], [1.0, -1.0]
    weights = token_weights(lengths, [None, None], "turn_mean")
    mean = sum(w * n * a for w, n, a in zip(weights, lengths, advantages, strict=True))
    assert mean == pytest.approx(0.0)


def test_token_mean_counts_each_token_alike() -> None:
    lengths, advantages = [2, 8], [1.0, -1.0]
    weights = token_weights(lengths, [None, None], "token_mean")
    mean = sum(w * n * a for w, n, a in zip(weights, lengths, advantages, strict=True))
    assert mean == pytest.approx(-0.6)


def test_trajectory_mean_counts_each_trajectory_alike() -> None:
    weights = token_weights([2, 6, 4], ["a", "a", None], "trajectory_mean")
    assert weights == pytest.approx([1 / 16, 1 / 16, 1 / 8])


@pytest.mark.parametrize("mode", MODES)
@given(
    tokens=st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any),
    data=st.data(),
)
def test_the_weights_of_all_tokens_sum_to_one(
    mode: Aggregation, tokens: list[int], data: st.DataObject
) -> None:
    names = st.sampled_from([None, "a", "b"])
    trajectories = data.draw(st.lists(names, min_size=len(tokens), max_size=len(tokens)))
    weights = token_weights(tokens, trajectories, mode)
    assert sum(w * n for w, n in zip(weights, tokens, strict=True)) == pytest.approx(1.0)


@pytest.mark.parametrize("mode", MODES)
def test_turns_without_a_signal_change_no_denominator(mode: Aggregation) -> None:
    alone = token_weights([3, 5], ["a", None], mode)
    among = token_weights([3, 0, 5, 0], ["a", "a", None, "c"], mode)
    assert [among[0], among[2]] == pytest.approx(alone)
    assert among[1] == among[3] == 0.0


@pytest.mark.parametrize("mode", MODES)
def test_a_step_without_any_signal_has_zero_weights(mode: Aggregation) -> None:
    assert token_weights([0, 0], [None, None], mode) == [0.0, 0.0]
