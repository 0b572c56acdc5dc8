"""Majority and quorum."""

from __future__ import annotations

import pytest

from rejoinder.judge.voting import (
    another_attempt_may_help,
    failed_vote,
    failure_code,
    failures,
    nothing_was_tried,
    verdict,
)
from rejoinder.types import Fate, Judgement, Vote

FAILED = failed_vote("http_503", "overloaded")


def votes(*scores: int | None) -> list[Vote]:
    return [FAILED if score is None else Vote(score) for score in scores]


@pytest.mark.parametrize(
    ("scores", "quorum", "expected"),
    [
        ((1, 1, 1), 2, 1),
        ((1, -1, -1), 2, -1),
        ((0, 0, 1), 2, 0),
        ((1, 1, None), 2, 1),
        ((1, 1, -1, -1, -1), 3, -1),
    ],
)
def test_more_than_half_of_the_votes_that_succeeded_decide(
    scores: tuple[int | None, ...], quorum: int, expected: int
) -> None:
    assert verdict(votes(*scores), quorum) == (expected, None)


def test_regression_one_positive_vote_against_two_does_not_win() -> None:
    assert verdict(votes(1, -1, -1), quorum=2)[0] == -1


@pytest.mark.parametrize("scores", [(1, -1), (1, -1, 0), (1, -1, None), (1, 1, -1, -1)])
def test_a_tie_is_no_verdict(scores: tuple[int | None, ...]) -> None:
    assert verdict(votes(*scores), quorum=2) == (None, Fate.NO_QUORUM)


def test_too_few_votes_are_no_verdict_however_unanimous() -> None:
    assert verdict(votes(1, None, None), quorum=2) == (None, Fate.NO_QUORUM)


def test_regression_all_votes_failed_is_no_verdict_and_not_neutral() -> None:
    assert verdict(votes(None, None, None), quorum=2) == (None, Fate.JUDGE_FAILED)
    assert verdict([], quorum=1) == (None, Fate.JUDGE_FAILED)


def test_failed_calls_are_worth_another_attempt_and_a_tie_is_not() -> None:
    failed = Judgement(None, tuple(votes(1, -1, None)), "f", Fate.NO_QUORUM)
    tie = Judgement(None, tuple(votes(1, -1)), "f", Fate.NO_QUORUM)
    decided = Judgement(1, tuple(votes(1, 1, None)), "f")
    assert another_attempt_may_help(failed)
    assert not another_attempt_may_help(tie)
    assert not another_attempt_may_help(decided)


def test_unsure_is_not_a_failure() -> None:
    unsure = Judgement(None, (Vote(None, "unsure", 0.1),), "f", Fate.JUDGE_UNSURE)
    assert failures(unsure) == []
    assert not another_attempt_may_help(unsure)


def test_a_failure_is_counted_by_its_code_alone() -> None:
    assert failure_code(FAILED) == "http_503"
    assert failure_code(failed_vote("timeout")) == "timeout"


@pytest.mark.parametrize("code", ["unreachable", "busy", *(f"http_{n}" for n in (429, 502, 503))])
def test_regression_a_call_that_nobody_took_uses_up_no_attempt(code: str) -> None:
    votes = (failed_vote(code, "later"), failed_vote("http_504"))
    assert nothing_was_tried(Judgement(None, votes, "f", Fate.JUDGE_FAILED))
    broken = (*votes, failed_vote("http_500"))
    assert not nothing_was_tried(Judgement(None, broken, "f", Fate.JUDGE_FAILED))
