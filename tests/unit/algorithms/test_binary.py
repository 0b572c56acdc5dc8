"""The binary algorithm: which verdicts make samples, and what a sample says of its tokens."""

from __future__ import annotations

import numpy as np
import pytest

from rejoinder.algorithms.binary import Binary
from rejoinder.journal.base import SampleSpec, TrainSample
from rejoinder.types import Fate, Judgement, VersionRun, Vote


def judgement(score: int | None, why: Fate | None = None) -> Judgement:
    return Judgement(score, (Vote(score),), "judge", why)


def sample(reward: float | None, answer: list[int]) -> TrainSample:
    return TrainSample(
        sample_id="s",
        turn_id="t",
        session_id="c",
        trajectory=None,
        prompt_ids=[1, 2],
        answer_ids=answer,
        logprobs=[-0.5] * len(answer),
        versions=(VersionRun(0, len(answer)),),
        temperature=1.0,
        reward=reward,
        hints=(),
        created_at=0.0,
    )


@pytest.mark.parametrize("score", [-1, 1])
def test_a_clear_verdict_makes_a_sample_with_its_score(score: int) -> None:
    assert Binary().sample_spec(judgement(score)) == SampleSpec(reward=float(score))


def test_regression_a_score_outside_the_three_makes_no_sample() -> None:
    with pytest.raises(ValueError, match="none of -1, 0, 1"):
        Binary().sample_spec(judgement(2))


def test_a_neutral_verdict_makes_no_sample_and_says_why() -> None:
    assert Binary().sample_spec(judgement(0)) is Fate.NEUTRAL


def test_no_verdict_is_never_taken_for_a_neutral_one() -> None:
    with pytest.raises(ValueError, match="no verdict"):
        Binary().sample_spec(judgement(None, Fate.NO_QUORUM))


def test_every_sampled_token_and_no_other_gets_the_reward() -> None:
    praised, scolded = Binary().signals([sample(1.0, [7, 8, 9]), sample(-1.0, [7])])
    assert praised is not None
    assert scolded is not None
    assert praised.advantages.tolist() == [1.0, 1.0, 1.0]
    assert praised.mask.tolist() == [True, True, True]
    assert scolded.advantages.tolist() == [-1.0]
    assert praised.advantages.dtype == np.float32


@pytest.mark.parametrize("reward", [None, 0.0])
def test_a_missing_signal_is_none_and_not_zero(reward: float | None) -> None:
    assert Binary().signals([sample(reward, [7, 8])]) == [None]


def test_an_empty_answer_has_no_signal() -> None:
    assert Binary().signals([sample(1.0, [])]) == [None]
