"""Configurations that cannot learn do not start."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from rejoinder.config import LossConfig, TeacherConfig, TrainerConfig
from rejoinder.errors import ConfigError
from rejoinder.trainer.checks import check_training, external_teachers, training_faults

BAD: dict[str, dict[str, Any]] = {
    "icepop_low": {"loss": {"icepop_low": 2.0, "icepop_high": 0.5}},
    "kl_importance weights": {"loss": {"kl_importance": True}},
    "'k1' without": {"loss": {"kl_kind": "k1", "kl_coefficient": 0.1}},
    "warmup_steps": {"schedule": "cosine", "warmup_steps": 9, "schedule_steps": 9},
    "trainer.average serves other": {"average": 0.5, "loss": {"correction": "none"}},
    "distil.alpha has no effect": {"loss": {"distil": {"kind": "topk", "alpha": 0.2}}},
    "distil.clip has no effect": {"loss": {"distil": {"kind": "tail", "clip": 2.0}}},
    "distil.top has no effect": {"loss": {"distil": {"kind": "token", "top": 8}}},
    "teacher.decay has no effect": {"teacher": {"weights": "current", "decay": 0.9}},
    "targets is empty": {"lora": {"targets": ()}},
}


@pytest.mark.parametrize("key", BAD)
def test_settings_that_cannot_learn_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        check_training(TrainerConfig.model_validate(BAD[key]))


def test_all_faults_are_told_at_once() -> None:
    settings = BAD["icepop_low"] | BAD["warmup_steps"]
    assert len(list(training_faults(TrainerConfig.model_validate(settings)))) == 2


def test_a_rate_that_falls_without_end_may_warm_up_for_long() -> None:
    check_training(TrainerConfig(schedule="inverse_sqrt", warmup_steps=9, schedule_steps=9))


@pytest.mark.parametrize(
    "loss",
    [
        {},
        {"kl_kind": "k1"},
        {"kl_kind": "k1", "kl_coefficient": 0.1, "kl_importance": True},
        {"kl_kind": "k2", "kl_coefficient": 0.1},
        {"correction": "none"},
    ],
    ids=str,
)
def test_losses_that_can_work_are_not_refused(loss: dict[str, Any]) -> None:
    check_training(TrainerConfig(loss=LossConfig(**loss)))


@pytest.mark.parametrize(
    ("teacher", "named"),
    [
        ({"engine": {"version": 3}}, "trainer.teacher.engine has no effect"),
        ({"weights": "engine", "engine": {"url": "127.0.0.1:9"}}, "not of the form"),
        ({"weights": "engine", "engine": {"url": "http://[::1"}}, "not of the form"),
        ({"weights": "engine", "engine": {"url": "http://127.0.0.1:99999"}}, "not of the form"),
        ({"weights": "engine", "engine": {"url": "http://me:secret@127.0.0.1:9"}}, "or password"),
        ({"weights": "engine", "engine": {"url": "http://gpu.example:9"}}, "allow_external = true"),
    ],
)
def test_a_teacher_s_engine_that_cannot_work_is_refused(
    teacher: dict[str, Any], named: str
) -> None:
    (fault,) = training_faults(TrainerConfig.model_validate({"teacher": teacher}))
    assert named in fault


def test_a_teacher_off_this_machine_is_named() -> None:
    config = TeacherConfig.model_validate(
        {"weights": "engine", "engine": {"url": "http://gpu.example:9", "allow_external": True}}
    )
    assert not list(training_faults(TrainerConfig(teacher=config)))
    assert external_teachers(config) == ["gpu.example"]
    assert external_teachers(TeacherConfig(weights="engine")) == []


def test_checking_needs_no_pytorch() -> None:
    code = (
        "import sys, rejoinder.trainer.checks, rejoinder.trainer.trackers; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
