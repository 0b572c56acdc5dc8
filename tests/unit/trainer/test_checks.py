"""Configurations that cannot learn do not start."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from rejoinder.algorithms.binary import Binary
from rejoinder.config import LossConfig, TrainerConfig
from rejoinder.errors import ConfigError
from rejoinder.trainer.checks import check_loss, check_training


class Needy(Binary):
    name = "needy"
    needs_behaviour_logprobs = True


@pytest.mark.parametrize("correction", ["bypass", "tis", "icepop", "decoupled"])
def test_a_correction_needs_behaviour_logprobs(correction: Any) -> None:  # B082
    config = LossConfig(correction=correction)
    check_loss(config, behaviour_logprobs=True)
    with pytest.raises(ConfigError, match=r"trainer\.loss\.correction"):
        check_loss(config, behaviour_logprobs=False)


def test_no_correction_needs_none() -> None:
    check_loss(LossConfig(correction="none"), behaviour_logprobs=False)


def test_kl_importance_needs_behaviour_logprobs() -> None:
    config = LossConfig(correction="none", kl_coefficient=0.1, kl_importance=True)
    with pytest.raises(ConfigError, match="kl_importance"):
        check_loss(config, behaviour_logprobs=False)


@pytest.mark.parametrize(
    ("loss", "key"),
    [
        ({"icepop_low": 2.0, "icepop_high": 0.5}, "icepop_low"),
        ({"kl_importance": True}, "kl_importance"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(loss: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        check_loss(LossConfig(**loss), behaviour_logprobs=True)


def test_an_algorithm_can_need_behaviour_logprobs_itself() -> None:
    config = TrainerConfig(loss=LossConfig(correction="none"))
    check_training(config, Binary(), behaviour_logprobs=False)
    check_training(config, Needy(), behaviour_logprobs=True)
    with pytest.raises(ConfigError, match="'needy'"):
        check_training(config, Needy(), behaviour_logprobs=False)


def test_checking_needs_no_pytorch() -> None:
    code = "import sys, rejoinder.trainer.checks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
