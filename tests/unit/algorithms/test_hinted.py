"""The algorithms that learn from hints: what makes a sample, and what a sample says."""

from __future__ import annotations

import numpy as np
import pytest

from rejoinder.algorithms import build_algorithm
from rejoinder.algorithms.base import TokenSignal
from rejoinder.config import DistilConfig, LossConfig, TrainerConfig
from rejoinder.journal.records import SampleSpec, TrainSample, judgement_of
from rejoinder.types import Fate, Judgement, Vote

from .test_binary import judgement, sample

HINT = ("Answer in one short sentence.",)


def hinted(reward: float | None, answer: list[int], hints: tuple[str, ...] = HINT) -> TrainSample:
    return sample(reward, answer, hints)


class TestOpd:
    algorithm = build_algorithm(TrainerConfig(algorithm="opd", hint_weight=0.5))

    @pytest.mark.parametrize("score", [-1, 0, 1])
    def test_a_hint_makes_a_sample_whatever_the_verdict(self, score: int) -> None:
        assert self.algorithm.sample_spec(judgement(score), HINT) == SampleSpec(None, HINT)

    def test_a_hint_counts_without_any_verdict(self) -> None:
        failed = judgement(None, Fate.JUDGE_FAILED)
        assert self.algorithm.sample_spec(failed, HINT) == SampleSpec(None, HINT)

    def test_without_a_hint_there_is_nothing_to_learn(self) -> None:
        assert self.algorithm.sample_spec(judgement(-1)) is Fate.NO_HINT

    def test_the_verdict_says_nothing_of_any_token(self) -> None:
        (signal,) = self.algorithm.signals([hinted(-1.0, [7, 8])])
        assert signal is not None
        assert signal.advantages.tolist() == [0.0, 0.0]
        assert signal.mask.tolist() == [True, True]
        assert signal.hint_weight == 0.5

    def test_a_sample_without_a_hint_or_a_token_has_no_signal(self) -> None:
        samples = [hinted(1.0, [7], ()), hinted(None, [])]
        assert self.algorithm.signals(samples) == [None, None]

    @pytest.mark.parametrize("kind", ["topk", "token", "tail", "jsd"])
    def test_its_loss_is_the_configured_distillation(self, kind: str) -> None:
        loss = LossConfig(distil=DistilConfig(kind=kind))  # type: ignore[arg-type]
        assert build_algorithm(TrainerConfig(algorithm="opd", loss=loss)).loss == f"distil_{kind}"


class TestCombine:
    algorithm = build_algorithm(
        TrainerConfig(algorithm="combine", verdict_weight=2.0, hint_weight=0.5)
    )

    def test_either_makes_a_sample_and_both_stay_together(self) -> None:
        spec = self.algorithm.sample_spec
        assert spec(judgement(-1), HINT) == SampleSpec(-1.0, HINT)
        assert spec(judgement(1)) == SampleSpec(1.0)
        assert spec(judgement(0), HINT) == SampleSpec(None, HINT)
        assert spec(judgement(None, Fate.NO_QUORUM), HINT) == SampleSpec(None, HINT)

    def test_a_judge_s_praise_beside_a_hint_counts_for_nothing(self) -> None:
        spec = self.algorithm.sample_spec
        assert spec(judgement(1), HINT) == SampleSpec(None, HINT)
        assert spec(judgement_of(1), HINT) == SampleSpec(1.0, HINT)

    def test_with_neither_the_reason_is_the_judgement_s(self) -> None:
        assert self.algorithm.sample_spec(judgement(0)) is Fate.NEUTRAL
        failed = judgement(None, Fate.JUDGE_FAILED)
        assert self.algorithm.sample_spec(failed) is Fate.JUDGE_FAILED

    def test_what_is_missing_weighs_exactly_nothing(self) -> None:
        both, verdict, hint = self.algorithm.signals(
            [hinted(-1.0, [7, 8]), hinted(1.0, [7], ()), hinted(None, [7])]
        )
        assert both is not None
        assert verdict is not None
        assert hint is not None
        assert (both.advantages.tolist(), both.hint_weight) == ([-2.0, -2.0], 0.5)
        assert (verdict.advantages.tolist(), verdict.hint_weight) == ([2.0], 0.0)
        assert (hint.advantages.tolist(), hint.hint_weight) == ([0.0], 0.5)

    def test_a_baseline_is_made_of_verdicts_alone(self) -> None:
        algorithm = build_algorithm(TrainerConfig(algorithm="combine", baseline="leave_one_out"))
        signals = algorithm.signals([hinted(-1.0, [7]), hinted(None, [7]), hinted(1.0, [7])])
        found = [float(signal.advantages[0]) for signal in signals if signal is not None]
        np.testing.assert_allclose(found, [-2.0, 0.0, 2.0])

    def test_verdicts_that_are_all_alike_leave_hints_alone(self) -> None:
        algorithm = build_algorithm(TrainerConfig(algorithm="combine", baseline="leave_one_out"))
        told, alone = algorithm.signals([hinted(-1.0, [7]), hinted(-1.0, [7], ())])
        assert isinstance(told, TokenSignal)
        assert (told.advantages.tolist(), told.hint_weight) == ([0.0], 1.0)
        assert alone is Fate.ALL_ALIKE


def test_a_score_outside_the_three_is_an_error_of_the_judge() -> None:
    algorithm = build_algorithm(TrainerConfig(algorithm="combine"))
    with pytest.raises(ValueError, match="none of -1, 0, 1"):
        algorithm.sample_spec(Judgement(2, (Vote(2),), "judge"), HINT)
