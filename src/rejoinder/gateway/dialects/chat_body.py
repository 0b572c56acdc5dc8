"""The body of a chat completion request: fields, types and ranges."""

from __future__ import annotations

from msgspec import Struct

from rejoinder.gateway.dialects.fields import (
    Choices,
    LogitBias,
    MinP,
    Penalty,
    Positive,
    Seed,
    Stop,
    StreamOptions,
    Temperature,
    TopK,
    TopLogprobs,
    TopP,
    User,
)
from rejoinder.types import Json


class JsonSchema(Struct):
    """``response_format.json_schema``; its name and description have no effect."""

    schema: Json | None = None
    strict: bool | None = None


class ResponseFormat(Struct):
    """``response_format``: plain text, any JSON object, or JSON that fits a schema."""

    type: str = "text"
    json_schema: JsonSchema | None = None


class ChatBody(Struct, kw_only=True):
    """The fields that have an effect. Null means the same as leaving a field out."""

    messages: list[Json]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    n: Choices | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: LogitBias | None = None
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    chat_template_kwargs: Json | None = None
    user: User | None = None
    metadata: Json | None = None
    prompt_cache_key: str | None = None
    session_id: str | None = None
    turn_type: str | None = None
    session_done: bool | None = None


IGNORED = frozenset(
    (
        "audio", "functions", "function_call", "modalities", "prediction",
        "reasoning_effort", "safety_identifier", "service_tier", "store",
        "verbosity", "web_search_options",
    )
)  # fmt: skip
"""Fields of the API without an effect here; like unknown ones they are tolerated and counted."""
