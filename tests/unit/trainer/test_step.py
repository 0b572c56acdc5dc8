"""Which samples of a batch train, how they are weighed, and what is told of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rejoinder.algorithms import build_algorithm
from rejoinder.algorithms.base import TokenSignal
from rejoinder.algorithms.binary import Binary
from rejoinder.config import LossConfig, TrainerConfig
from rejoinder.journal.records import PolicyVersion, SampleSpec, StepSample, TrainSample
from rejoinder.trainer.base import StepFigures
from rejoinder.trainer.hinted import HintFault, TeacherPrompts
from rejoinder.trainer.step import (
    PreparedStep,
    prepare_step,
    step_metrics,
    steps_to_head,
    used_samples,
)
from rejoinder.types import Fate, Judgement, VersionRun, VersionState, WeightsKind


def sample(tokens: int = 3, reward: float | None = 1.0, **changes: Any) -> TrainSample:
    fields: dict[str, Any] = {
        "sample_id": f"s{tokens}",
        "turn_id": "t",
        "session_id": "c",
        "trajectory": None,
        "prompt_ids": [1, 2],
        "answer_ids": list(range(tokens)),
        "logprobs": [-0.5] * tokens,
        "versions": (VersionRun(5, tokens),),
        "temperature": 0.7,
        "reward": reward,
        "hints": (),
        "created_at": 0.0,
    }
    return TrainSample(**(fields | changes))


def prepare(samples: Sequence[TrainSample], **loss: Any) -> PreparedStep:
    return prepare_step(samples, Binary(), LossConfig(**loss), {5: 0, 4: 1, 0: 2}, 5)


def test_turns_keep_what_was_sampled() -> None:
    (turn,) = prepare([sample(3)]).turns
    assert (turn.prompt_ids, turn.answer_ids) == ([1, 2], [0, 1, 2])
    assert turn.behaviour == [-0.5] * 3
    assert turn.temperature == 0.7
    assert turn.is_current


def test_samples_without_a_signal_change_no_weight_and_are_named() -> None:
    alone = prepare([sample(2), sample(4)])
    among = prepare([sample(2), sample(9, reward=None), sample(4), sample(3, reward=0.0)])
    assert [turn.weight for turn in among.turns] == [turn.weight for turn in alone.turns]
    assert among.without_signal == {"s9": Fate.NO_SIGNAL, "s3": Fate.NO_SIGNAL}
    assert len(among.samples) == 4  # all of them are used up


def test_what_a_step_uses_up_says_why_it_changed_no_weights() -> None:
    prepared = prepare([sample(2), sample(9, reward=None)])
    assert used_samples(prepared, None) == [
        StepSample("s2", 1.0),
        StepSample("s9", None, Fate.NO_SIGNAL),
    ]
    skipped = used_samples(prepared, "non_finite_loss")
    assert [one.untrained for one in skipped] == ["non_finite_loss", Fate.NO_SIGNAL]


@pytest.mark.parametrize("bad", [[-0.5, -0.5], [-0.5, math.nan, -0.5], [-0.5, -math.inf, -0.5]])
def test_ids_without_a_finite_logprob_never_train(bad: list[float]) -> None:  # B039, B040, B044
    step = prepare([sample(3, logprobs=bad), sample(2)])
    assert len(step.turns) == 1
    assert step.without_signal == {"s3": Fate.MISSING_LOGPROBS}


@pytest.mark.parametrize("reward", [-1.0, 1.0])
def test_verdicts_that_are_all_alike_change_nothing_where_they_count_against_each_other(
    reward: float,
) -> None:
    samples = [sample(2, reward), sample(4, reward), sample(3, None)]

    def prepared(*more: TrainSample) -> PreparedStep:
        return prepare_step(
            [*samples, *more], Binary("leave_one_out"), LossConfig(kl_coefficient=0.1), {5: 0}, 5
        )

    alike = prepared()
    assert alike.turns == []
    assert alike.without_signal == {
        "s2": Fate.ALL_ALIKE,
        "s4": Fate.ALL_ALIKE,
        "s3": Fate.NO_SIGNAL,
    }
    assert [one.untrained for one in used_samples(alike, "no_signal")] == [
        Fate.ALL_ALIKE,
        Fate.ALL_ALIKE,
        Fate.NO_SIGNAL,
    ]
    assert len(prepared(sample(5, -reward)).turns) == 3
    assert len(prepare(samples).turns) == 2  # each counts by itself


def test_turns_of_older_versions_are_not_current() -> None:
    old, mixed = prepare(
        [
            sample(3, versions=(VersionRun(4, 3),)),
            sample(3, versions=(VersionRun(4, 1), VersionRun(5, 2))),
        ]
    ).turns
    assert not old.is_current
    assert not mixed.is_current


def test_a_step_says_which_version_answered_most_of_what_was_judged() -> None:
    old = [sample(2, 1.0, versions=(VersionRun(4, 2),)) for _ in range(2)]
    new = [sample(2, 1.0, versions=(VersionRun(5, 2),)) for _ in range(2)]
    unjudged = [sample(2, None, versions=(VersionRun(5, 2),)) for _ in range(2)]
    assert prepare([*old, new[0]]).metrics["answered_by"] == 4
    assert prepare([old[0], *new]).metrics["answered_by"] == 5
    assert prepare([*new, *old]).metrics["answered_by"] == 4, "the older one of two"
    assert prepare([old[0], *unjudged]).metrics["answered_by"] == 4
    assert "answered_by" not in prepare(unjudged).metrics


def test_figures_of_the_batch() -> None:
    metrics = prepare(
        [
            sample(2, 1.0),
            sample(4, -1.0, versions=(VersionRun(4, 1), VersionRun(5, 3))),
            sample(6, -1.0, versions=(VersionRun(0, 6),)),
        ]
    ).metrics
    assert metrics["reward_mean"] == pytest.approx(-1 / 3)
    assert metrics["scored"] == 3
    assert metrics["advantage_mean"] == pytest.approx((2 - 10) / 12)
    assert metrics["advantage_positive"] == pytest.approx(2 / 12)
    assert metrics["mixed_version_turns"] == 1
    assert metrics["staleness_mean"] == pytest.approx(1.0)
    assert metrics["staleness_max"] == 2
    assert metrics["answer_tokens_mean"] == 4


def test_a_signal_of_the_wrong_length_is_an_error_of_the_algorithm() -> None:
    class Wrong:
        name, loss, needs_hints, needs_verdicts = "wrong", "policy", False, True

        def sample_spec(self, judgement: Judgement, hints: Sequence[str] = ()) -> SampleSpec | Fate:
            return Fate.NO_SIGNAL

        def signals(self, samples: Sequence[TrainSample]) -> list[TokenSignal | None]:
            return [TokenSignal(np.ones(2, np.float32), np.ones(2, np.bool_)) for _ in samples]

    with pytest.raises(ValueError, match="mask has 2 tokens, the answer 3"):
        prepare_step([sample(3)], Wrong(), LossConfig(), {}, 5)


class Prompts:
    """Puts hints into prompts, but for those that are too long."""

    def prompts(self, sample: TrainSample) -> TeacherPrompts:
        fitting = [[*sample.prompt_ids, len(hint)] for hint in sample.hints if len(hint) < 9]
        faults = (HintFault.NO_ROOM,) * (len(sample.hints) - len(fitting))
        return TeacherPrompts(tuple(fitting), faults)


def prepare_hinted(*samples: TrainSample) -> PreparedStep:
    algorithm = build_algorithm(TrainerConfig(algorithm="combine"))
    return prepare_step(samples, algorithm, LossConfig(), {5: 0}, 5, Prompts())  # type: ignore[arg-type]


def test_hinted_turns_bring_the_prompts_of_their_teacher() -> None:
    step = prepare_hinted(sample(3, None, hints=("short", "longer than it may")), sample(2))
    hinted, plain = step.turns
    assert hinted.teacher_prompts == ([1, 2, 5],)
    assert hinted.signal.hint_weight == 1.0
    assert plain.teacher_prompts == ()
    assert step.hint_faults == {"no_room": 1}
    assert (step.metrics["hints"], step.metrics["hints_dropped"]) == (1, 1)


def test_a_hint_that_does_not_fit_leaves_the_verdict_alone() -> None:
    step = prepare_hinted(sample(3, -1.0, hints=("longer than it may",)))
    (turn,) = step.turns
    assert turn.teacher_prompts == ()
    assert turn.signal.hint_weight == 0.0
    assert turn.signal.advantages.tolist() == [-1.0] * 3


def test_a_hint_that_does_not_fit_and_no_verdict_say_why_nothing_is_learnt() -> None:
    step = prepare_hinted(sample(3, None, hints=("longer than it may",)))
    assert step.turns == []
    assert step.without_signal == {"s3": "no_room"}


def test_hints_that_the_teacher_refused_are_dropped_with_their_own_reason() -> None:
    samples = [sample(3, -1.0, hints=("short",)), sample(4, None, hints=("short",)), sample(2)]
    algorithm = build_algorithm(TrainerConfig(algorithm="combine"))
    step = prepare_step(
        samples,
        algorithm,
        LossConfig(),
        {5: 0},
        5,
        Prompts(),
        {"s3", "s4"},  # type: ignore[arg-type]
    )
    scored, plain = step.turns
    assert scored.signal.hint_weight == 0.0
    assert step.without_signal == {"s4": "teacher_failed"}
    assert step.hint_faults == {"teacher_failed": 2}
    # The dropped ones are not in the denominator: two turns are left.
    assert (scored.weight, plain.weight) == (pytest.approx(1 / 6), pytest.approx(1 / 4))
    assert [step.sample_of(turn) for turn in step.turns] == ["s3", "s2"]


def version(number: int, parent: int | None, files: int | None = None) -> PolicyVersion:
    return PolicyVersion(
        policy="default",
        version=number,
        uri=f"/versions/{number if files is None else files}",
        kind=WeightsKind.FULL,
        base_uri="",
        parent=parent,
        lineage_id=None,
        step=None,
        state=VersionState.RETIRED,
        created_at=0.0,
    )


def test_distances_follow_parents_and_not_numbers() -> None:
    """Version 3 was orphaned, 2 was rolled back: numbers jump, steps do not."""
    versions = [
        version(0, None), version(1, 0), version(2, 1), version(3, 2), version(4, 1), version(7, 4),
    ]  # fmt: skip
    assert steps_to_head(versions, 7) == {7: 0, 4: 1, 1: 2, 0: 3}


def test_a_step_that_changed_no_weights_is_no_distance() -> None:
    versions = [version(0, None), version(1, 0), version(2, 1, files=1), version(3, 2)]
    assert steps_to_head(versions, 3) == {3: 0, 2: 1, 1: 1, 0: 2}
    assert steps_to_head(versions, 2) == {2: 0, 1: 0, 0: 1}


def test_a_figure_that_is_not_finite_is_left_out() -> None:
    step = prepare([sample(3)])
    metrics = step_metrics(step, StepFigures({"grad_norm": math.nan}, "non_finite_gradient"), 2.0)
    assert "grad_norm" not in metrics
    assert metrics["skipped"] == 1.0
    assert metrics["seconds"] == 2.0
