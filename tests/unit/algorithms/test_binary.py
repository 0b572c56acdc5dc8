"""The binary algorithm: which verdicts make samples, and what a sample says of its tokens."""

from __future__ import annotations

import numpy as np
import pytest

from rejoinder.algorithms import build_algorithm
from rejoinder.algorithms.binary import Binary
from rejoinder.config import TrainerConfig
from rejoinder.journal.records import SampleSpec, TrainSample
from rejoinder.types import Fate, Judgement, VersionRun, Vote


def judgement(score: int | None, why: Fate | None = None) -> Judgement:
    return Judgement(score, (Vote(score),), "judge", why)


def sample(reward: float | None, answer: list[int], hints: tuple[str, ...] = ()) -> TrainSample:
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
        hints=hints,
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
    assert Binary().sample_spec(judgement(None, Fate.NO_QUORUM)) is Fate.NO_QUORUM


def test_hints_are_nothing_to_it() -> None:
    spec = Binary().sample_spec(judgement(1), ("Answer in one sentence.",))
    assert spec == SampleSpec(reward=1.0)
    assert Binary().sample_spec(judgement(0), ("Answer in one sentence.",)) is Fate.NEUTRAL


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


def test_the_mean_of_the_others_is_taken_off_where_it_is_asked_for() -> None:
    rewards = [1.0, 1.0, -1.0, None, 1.0]
    signals = Binary("leave_one_out").signals([sample(reward, [7, 8]) for reward in rewards])
    known = np.array([1.0, 1.0, -1.0, 1.0])
    expected = [own - np.delete(known, at).mean() for at, own in enumerate(known)]
    found = [float(signal.advantages[0]) for signal in signals if signal is not None]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert signals[3] is None
    assert abs(sum(found)) < 1e-6


def test_verdicts_that_are_all_the_same_teach_nothing_against_each_other() -> None:
    signals = Binary("leave_one_out").signals([sample(1.0, [7]), sample(1.0, [8, 9])])
    assert signals == [Fate.ALL_ALIKE, Fate.ALL_ALIKE]


def test_a_sample_alone_has_nothing_to_be_set_against() -> None:
    (signal,) = Binary("leave_one_out").signals([sample(-1.0, [7])])
    assert signal is not None
    assert signal.advantages.tolist() == [-1.0]


def test_the_setting_reaches_the_algorithm() -> None:
    algorithm = build_algorithm(TrainerConfig(baseline="leave_one_out"))
    signals = algorithm.signals([sample(1.0, [7]), sample(-1.0, [7])])
    assert [signal.advantages.tolist() for signal in signals if signal] == [[2.0], [-2.0]]
