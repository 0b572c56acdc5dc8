"""``[engine]``: what samples."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rejoinder.config.section import Section


class TorchEngineConfig(Section):
    """The in-process PyTorch engine (a process of its own, reached over loopback HTTP)."""

    kind: Literal["torch"] = "torch"
    host: str = "127.0.0.1"
    port: int = Field(8081, ge=0, le=65535)
    max_running: int = Field(16, ge=1)
    """Answers to people that are computed together; judges have places besides, at most an eighth
    as many, so that people who talk without a pause do not keep verdicts waiting."""
    max_waiting: int = Field(1024, ge=1)
    cache_slots: int = Field(32, ge=2)
    """KV slots: running sequences and finished ones kept for prefix reuse."""
    context_length: int | None = Field(None, ge=64)
    """Not set: what the model's configuration says."""
    prefill_chunk: int = Field(128, ge=8)
    """Prompt tokens per step: bounds how long a prompt stalls the others."""
    threads: int | None = Field(None, ge=1)
    """CPU threads; not set: PyTorch chooses."""
    poll_s: float = Field(0.5, gt=0)
    """How often the registry is asked for a new live version."""


class ScriptedEngineConfig(Section):
    """Answers with fixed text at a fixed rate: for tests and gateway benchmarks, never a claim."""

    kind: Literal["scripted"] = "scripted"
    answer: str = "A scripted answer."
    tokens_per_second: float | None = None
    """Not set: at once."""
    context_length: int = 8192


EngineConfig = Annotated[TorchEngineConfig | ScriptedEngineConfig, Field(discriminator="kind")]
