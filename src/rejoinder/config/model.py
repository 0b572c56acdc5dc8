"""``[model]``: the policy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rejoinder.config.section import Section


class ModelConfig(Section):
    """The policy that users are served and that trains."""

    policy: str = Field("default", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """Name of the policy; what clients put into ``model`` (any other listed alias works too)."""
    path: str = "embedded"
    """``embedded`` (SmolLM2-135M-Instruct from its package), a model directory, or a hub id."""
    family: Literal["auto", "generic", "qwen", "llama", "mistral", "glm", "deepseek", "gpt-oss"] = (
        "auto"
    )
    """How answers are read: which markers stand around thoughts and tool calls. ``auto`` asks the
    chat template; ``generic`` reads all text as content."""
    dtype: Literal["float32", "bfloat16", "auto"] = "auto"
    """``auto``: bfloat16 on CUDA, float32 on CPU (a bf16 backward pass is far slower there)."""
    device: str = "auto"
    """``auto`` takes CUDA if there is one; else ``cpu``, ``cuda``, ``cuda:1``."""
