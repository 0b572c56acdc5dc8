"""``[hints]``: who says how an answer should have been."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rejoinder.config.judge import LlmVotesConfig
from rejoinder.config.section import Section


class NoHintsConfig(Section):
    """Next states give scores only."""

    kind: Literal["off"] = "off"


class ExtractiveHintsConfig(Section):
    """The person's own words about manner, turned into an instruction; needs no model. English."""

    kind: Literal["extractive"] = "extractive"


class LlmHintsConfig(LlmVotesConfig):
    """m votes of a language model; a hint needs a majority of all of them."""

    kind: Literal["llm"] = "llm"


class JudgeHintsConfig(Section):
    """One pass: each vote of the judge, with ``judge.kind = "llm"``, gives a score and a hint."""

    kind: Literal["judge"] = "judge"


HintsConfig = Annotated[
    NoHintsConfig | ExtractiveHintsConfig | LlmHintsConfig | JudgeHintsConfig,
    Field(discriminator="kind"),
]
