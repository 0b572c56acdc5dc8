"""``[judge]``: who gives verdicts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rejoinder.config.section import Section


class CallLimits(Section):
    """How many calls at once, and how long one may take."""

    concurrency: int = Field(2, ge=1)
    timeout_s: float = Field(60.0, gt=0)


class JudgeLimits(CallLimits):
    """Shared by all judges."""

    attempts: int = Field(4, ge=1)
    """Calls per turn before it becomes ``judge_failed``; the wait doubles from one second."""


class LikelihoodJudgeConfig(JudgeLimits):
    """Compares the model's probabilities of the verdict labels; works with a small model."""

    kind: Literal["likelihood"] = "likelihood"
    threshold: float = 0.0
    """Log-odds above which an answer counts as good; chosen on the development split."""
    margin: float = Field(0.2, ge=0)
    """|log-odds - threshold| below this is *unsure*: no verdict."""


class LlmVotesConfig(CallLimits):
    """Votes of a language model: on verdicts, or on hints."""

    base_url: str | None = None
    """OpenAI-compatible endpoint (``http://host:port/v1``); not set: the engine, frozen weights."""
    model: str | None = None
    api_key_env: str | None = None
    allow_external: bool = False
    """Must be true for an endpoint off this machine: conversations leave it."""
    votes: int = Field(3, ge=1)
    temperature: float = Field(0.6, ge=0)
    max_tokens: int = Field(1024, ge=16)
    context_messages: int = Field(6, ge=1)
    max_chars: int = Field(24000, ge=1000)
    """Conversation text in one judge prompt; longer parts are shortened in the middle."""
    structured: bool = True
    """Ask for JSON by ``response_format`` where the endpoint supports it."""


class LlmJudgeConfig(JudgeLimits, LlmVotesConfig):
    """m votes of a language model with a majority and a quorum."""

    kind: Literal["llm"] = "llm"
    quorum: int | None = Field(None, ge=1)
    """Votes that must succeed; not set: a majority of ``votes``."""


class CallableJudgeConfig(JudgeLimits):
    """A Python callable ``package.module:function`` of (context, answer, next state)."""

    kind: Literal["callable"] = "callable"
    target: str = Field(pattern=r"^\w+(\.\w+)*:\w+(\.\w+)*$")


class FeedbackJudgeConfig(JudgeLimits):
    """Only explicit feedback scores; next states are recorded and not judged."""

    kind: Literal["feedback"] = "feedback"


class PluginJudgeConfig(JudgeLimits):
    """A judge of another package, found by its name in the entry points ``rejoinder.judges``."""

    kind: Literal["plugin"] = "plugin"
    name: str = Field(min_length=1)
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Handed to the plugin as they are."""


JudgeConfig = Annotated[
    LikelihoodJudgeConfig
    | LlmJudgeConfig
    | CallableJudgeConfig
    | FeedbackJudgeConfig
    | PluginJudgeConfig,
    Field(discriminator="kind"),
]
