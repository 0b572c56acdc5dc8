"""From configuration to a hint judge."""

from __future__ import annotations

from rejoinder.algorithms.base import Algorithm
from rejoinder.config import (
    Config,
    ExtractiveHintsConfig,
    HintsConfig,
    JudgeHintsConfig,
    LlmHintsConfig,
    LlmJudgeConfig,
)
from rejoinder.errors import ConfigError
from rejoinder.judge.base import JudgeSetting
from rejoinder.judge.hints.base import HintJudge


def build_hint_judge(setting: JudgeSetting, config: HintsConfig) -> HintJudge | None:
    """Build the hint judge that ``config`` picks; None where hints are off.

    Raises:
        ConfigError: it cannot work as configured.
    """
    special_tokens = setting.tokenizer.special_texts
    if isinstance(config, ExtractiveHintsConfig):
        from rejoinder.judge.hints.extractive import ExtractiveHintJudge

        return ExtractiveHintJudge(special_tokens)
    if isinstance(config, LlmHintsConfig):
        from rejoinder.judge.asking import build_completer
        from rejoinder.judge.hints.llm import LlmHintJudge
        from rejoinder.judge.hints.prompts import RESPONSE_FORMAT

        completer = build_completer(setting, config, RESPONSE_FORMAT, "hints")
        return LlmHintJudge(config, completer, special_tokens)
    if isinstance(config, JudgeHintsConfig):
        from rejoinder.judge.one_pass import build

        return build(setting)
    return None


def refuse_missing_hints(algorithm: Algorithm, config: Config) -> None:
    """Refuse an algorithm whose hints nobody draws, and hints that nobody learns from.

    Raises:
        ConfigError: as said, with what to change.
    """
    if algorithm.needs_hints and config.hints.kind == "off":
        raise ConfigError(
            f"trainer.algorithm = {algorithm.name!r} learns from hints, and hints.kind is 'off': "
            "set it to 'extractive' or 'llm', or trainer.algorithm to 'binary'"
        )
    if config.hints.kind == "judge" and not (
        algorithm.needs_verdicts and isinstance(config.judge, LlmJudgeConfig)
    ):
        raise ConfigError(
            "hints.kind = 'judge' takes hints from the judge's votes, which needs judge.kind = "
            "'llm' and an algorithm that learns from verdicts too: set hints.kind to 'extractive' "
            "or 'llm', or judge.kind to 'llm' and trainer.algorithm to 'combine'"
        )
    if not algorithm.needs_hints and config.hints.kind != "off":
        raise ConfigError(
            f"hints.kind = {config.hints.kind!r} has no effect with trainer.algorithm = "
            f"{algorithm.name!r}, which learns from verdicts alone: set trainer.algorithm to "
            "'combine', or remove the [hints] section"
        )
