"""``[evaluation]``: fixed prompts for every version."""

from __future__ import annotations

from pydantic import Field, model_validator

from rejoinder.config.section import Section


class EvaluationConfig(Section):
    """Fixed prompts answered by each version, scored by a callable, kept with the version."""

    every: int = Field(0, ge=0)
    """Versions between evaluations; 0: never."""
    prompts: str | None = None
    """JSONL file of ``{"messages": [...]}``."""
    scorer: str | None = Field(None, pattern=r"^[\w.]+:[\w.]+$")
    """``package.module:function`` of (messages, answer) -> float."""
    max_tokens: int = Field(160, ge=1)

    @model_validator(mode="after")
    def _complete(self) -> EvaluationConfig:
        if self.every and not (self.prompts and self.scorer):
            raise ValueError("evaluation.every needs evaluation.prompts and evaluation.scorer")
        return self
