"""The body of a chat completion request: fields, types and ranges."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from rejoinder.gateway.request import (
    LARGEST_SEED,
    MAX_BIASES,
    MAX_CHOICES,
    MAX_STOP_CHARS,
    MAX_STOPS,
    MAX_USER_CHARS,
)
from rejoinder.types import Json

_Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
_Positive = Annotated[int, Meta(ge=1)]
_Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]


class StreamOptions(Struct):
    """``stream_options``."""

    include_usage: bool | None = None


class ResponseFormat(Struct):
    """``response_format``; only plain text can be asked for."""

    type: str = "text"


class ChatBody(Struct, kw_only=True):
    """The fields that have an effect. Null means the same as leaving a field out."""

    messages: list[Json]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: _Positive | None = None
    max_completion_tokens: _Positive | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    seed: Annotated[int, Meta(ge=-LARGEST_SEED, le=LARGEST_SEED)] | None = None
    stop: _Stop | Annotated[list[_Stop], Meta(max_length=MAX_STOPS)] | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    frequency_penalty: _Penalty | None = None
    presence_penalty: _Penalty | None = None
    logit_bias: (
        Annotated[
            dict[str, Annotated[float, Meta(ge=-100.0, le=100.0)]], Meta(max_length=MAX_BIASES)
        ]
        | None
    ) = None
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    response_format: ResponseFormat | None = None
    chat_template_kwargs: Json | None = None
    user: Annotated[str, Meta(max_length=MAX_USER_CHARS)] | None = None
    metadata: Json | None = None
    prompt_cache_key: str | None = None
    session_id: str | None = None
    turn_type: str | None = None
    session_done: bool | None = None


IGNORED = frozenset(
    (
        "audio", "functions", "function_call", "modalities", "parallel_tool_calls", "prediction",
        "reasoning_effort", "safety_identifier", "service_tier", "store",
        "verbosity", "web_search_options",
    )
)  # fmt: skip
"""Fields of the API without an effect here; like unknown ones they are tolerated and counted."""
