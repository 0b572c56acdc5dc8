"""Configurations that cannot learn are refused at start (rule 10). Knows no PyTorch."""

from __future__ import annotations

from rejoinder.algorithms.base import Algorithm
from rejoinder.config import LossConfig, TrainerConfig
from rejoinder.errors import ConfigError


def check_training(
    config: TrainerConfig, algorithm: Algorithm, *, behaviour_logprobs: bool
) -> None:
    """Refuse an algorithm and a loss that cannot work together or with the engine.

    Args:
        config: the trainer's settings.
        algorithm: the one they name.
        behaviour_logprobs: whether samples carry the log-probabilities they were sampled with
            (the engine's capability ``logprobs``).

    Raises:
        ConfigError: the message names the key and the remedy.
    """
    check_loss(config.loss, behaviour_logprobs=behaviour_logprobs)
    if algorithm.needs_behaviour_logprobs and not behaviour_logprobs:
        raise ConfigError(
            f"trainer.algorithm = {algorithm.name!r} needs the log-probabilities that answers were "
            'sampled with: use an engine with the capability "logprobs", or another algorithm'
        )


def check_loss(config: LossConfig, *, behaviour_logprobs: bool) -> None:
    """Refuse a loss that cannot work.

    Args:
        config: the loss.
        behaviour_logprobs: whether samples carry the log-probabilities they were sampled with.

    Raises:
        ConfigError: the message names the key and the remedy.
    """
    if config.icepop_low >= config.icepop_high:
        raise ConfigError("trainer.loss.icepop_low must be below trainer.loss.icepop_high")
    if config.kl_importance and not config.kl_coefficient:
        raise ConfigError(
            "trainer.loss.kl_importance weights a KL term that trainer.loss.kl_coefficient = 0 "
            "turns off: set the coefficient, or remove kl_importance"
        )
    if behaviour_logprobs:
        return
    if config.correction != "none":
        raise ConfigError(
            f"trainer.loss.correction = {config.correction!r} needs the log-probabilities that "
            "answers were sampled with, and this engine does not give them: use an engine with "
            'the capability "logprobs", or set it to "none"'
        )
    if config.kl_importance:
        raise ConfigError(
            "trainer.loss.kl_importance needs the log-probabilities that answers were sampled "
            'with: use an engine with the capability "logprobs", or remove it'
        )
