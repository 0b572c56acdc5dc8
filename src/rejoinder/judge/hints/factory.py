"""From configuration to a hint judge."""

from __future__ import annotations

from rejoinder.config import ExtractiveHintsConfig, HintsConfig, LlmHintsConfig
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
    return None
