"""The bodies of Anthropic Messages requests: fields, types and ranges."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from rejoinder.gateway.request import MAX_STOP_CHARS, MAX_STOPS
from rejoinder.types import Json


class ToolChoice(Struct):
    """``tool_choice``."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    """Of the tool, where it is one."""
    disable_parallel_tool_use: bool | None = None
    """A call that is asked for is the only one."""


class Thinking(Struct):
    """``thinking``: whether the chat template shall let the model think, where it can choose."""

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]


class OutputFormat(Struct):
    """``output_config.format``: JSON that fits a schema."""

    type: str
    schema: Json | None = None


class OutputConfig(Struct):
    """``output_config``; everything but its format has no effect."""

    format: OutputFormat | None = None


class Tool(Struct):
    """A tool that the client runs."""

    name: str
    input_schema: Json | None = None
    """Missing in tools of Anthropic's own, which are not served."""
    description: str | None = None
    type: str | None = None
    strict: bool | None = None
    """Of a call that is asked for, refuse what of the schema cannot be enforced."""
    defer_loading: bool | None = None
    """Leave it out of the prompt until a tool's result refers to it."""


class CountBody(Struct, kw_only=True):
    """The fields that have an effect on a prompt. Null means the same as leaving a field out."""

    messages: list[Json]
    model: str | None = None
    system: str | list[Json] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None


class MessagesBody(CountBody, kw_only=True):
    """The fields that have an effect on an answer."""

    max_tokens: Annotated[int, Meta(ge=1)]
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    stop_sequences: (
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]],
            Meta(max_length=MAX_STOPS),
        ]
        | None
    ) = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    """As it was before ``output_config``."""
    metadata: Json | None = None
    session_id: str | None = None
    turn_type: str | None = None
    session_done: bool | None = None


IGNORED = frozenset(
    (
        "betas", "cache_control", "container", "context_management", "diagnostics",
        "inference_geo", "mcp_servers", "service_tier", "speed", "user_profile_id",
    )
)  # fmt: skip
"""Fields of the API without an effect here; like unknown ones they are tolerated and counted."""
