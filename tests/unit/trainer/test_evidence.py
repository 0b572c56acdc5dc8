"""Hints count as far as their teacher raises answers that pleased above others."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rejoinder.algorithms.base import TokenSignal
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.evidence import evidence, rise, under_hint, weighed


def turn(prompt: int, *, hinted: bool = False, borrowed: bool = False) -> SignalledTurn:
    mask = np.array([True, False, True])
    return SignalledTurn(
        prompt_ids=[prompt],
        answer_ids=[1, 2, 3],
        behaviour=[-1.0, -9.0, -3.0],
        temperature=1.0,
        signal=TokenSignal(np.ones(3, np.float32), mask, 0.5 * hinted),
        weight=1 / 3,
        is_current=True,
        teacher_prompts=([prompt, 8],) if hinted else (),
        borrowed_prompt=[prompt, 9] if borrowed else None,
    )


def test_both_kinds_are_read_under_a_hint_and_the_rest_is_not() -> None:
    asked = under_hint([turn(1, hinted=True), turn(2), turn(3, borrowed=True)])
    assert [one.prompt_ids for one in asked] == [[3, 9], [1, 8]]
    assert not any(one.signal.hint_weight for one in asked)


@pytest.mark.parametrize("turns", [[], [turn(1, hinted=True), turn(2)], [turn(1, borrowed=True)]])
def test_without_both_kinds_there_is_nothing_to_compare(turns: list[SignalledTurn]) -> None:
    assert under_hint(turns) == []


def test_a_rise_is_the_mean_over_the_tokens_that_learn() -> None:
    assert rise(turn(1), [-0.5, -2.0]) == pytest.approx((0.5 + 1.0) / 2)


@pytest.mark.parametrize("seed", range(5))
def test_evidence_is_that_of_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked = under_hint(
        [turn(n, hinted=n % 3 == 0, borrowed=n % 3 == 1) for n in range(int(rng.integers(4, 30)))]
    )
    rises = rng.integers(-3, 4, len(asked)) / 2  # equal ones among them
    pleased = [own for own, one in zip(rises, asked, strict=True) if one.borrowed_prompt]
    wished = [own for own, one in zip(rises, asked, strict=True) if not one.borrowed_prompt]
    pairs = [(a > b) + 0.5 * (a == b) for a, b in itertools.product(pleased, wished)]
    assert evidence(asked, rises.tolist()) == pytest.approx(max(0.0, 2 * np.mean(pairs) - 1))


def test_a_teacher_that_raises_what_did_not_please_is_not_followed() -> None:
    """Given are the rises of two answers that pleased, then of one that did not."""
    asked = under_hint([turn(1, hinted=True), turn(2, borrowed=True), turn(3, borrowed=True)])
    assert evidence(asked, [0.1, 0.2, 0.0]) == 1.0
    assert evidence(asked, [-0.1, -0.2, 0.0]) == 0.0
    assert evidence(asked, [0.1, -0.1, 0.0]) == 0.0


def test_a_teacher_that_says_no_number_is_left_to_the_guard_of_the_loss() -> None:
    """Else a step would go on without it, as if it had been weighed."""
    asked = under_hint([turn(1, hinted=True), turn(2, borrowed=True)])
    assert evidence(asked, [0.1, float("nan")]) == 1.0
    assert evidence(asked, [float("nan"), 0.1]) == 1.0


def test_hints_that_count_nothing_have_no_teacher_to_ask() -> None:
    turns = [turn(1, hinted=True), turn(2, borrowed=True), turn(3)]
    half = weighed(turns, 0.5)
    assert [one.signal.hint_weight for one in half] == [0.25, 0.0, 0.0]
    assert half[0].teacher_prompts == turns[0].teacher_prompts
    none = weighed(turns, 0.0)
    assert [(one.signal.hint_weight, one.teacher_prompts) for one in none] == [(0.0, ())] * 3
