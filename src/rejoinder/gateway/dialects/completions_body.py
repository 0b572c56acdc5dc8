"""The body of a legacy completion request: fields, types and ranges."""

from __future__ import annotations

from typing import Any

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
from rejoinder.gateway.errors import ApiError
from rejoinder.types import Json


class CompletionsBody(Struct, kw_only=True):
    """The fields that have an effect. Null means the same as leaving a field out."""

    prompt: str | list[Any]
    """A text, token ids, or a list of either."""
    model: str | None = None
    max_tokens: Positive | None = None
    n: Choices | None = None
    best_of: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: TopLogprobs | None = None
    echo: bool | None = None
    suffix: str | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: LogitBias | None = None
    user: User | None = None
    metadata: Json | None = None
    session_id: str | None = None
    turn_type: str | None = None
    session_done: bool | None = None


def read_prompts(given: str | list[Any]) -> list[str | tuple[int, ...]]:
    """Return the prompts of a request: texts and lists of token ids.

    Raises:
        ApiError: 400, none, an empty one, or something else than text and ids.
    """
    if isinstance(given, str):
        return [_text(given)]
    if _are_ids(given):
        return [tuple(given)]
    if not given:
        raise _bad("prompt must not be empty")
    return [_text(one) if isinstance(one, str) else _ids(one) for one in given]


def _text(text: str) -> str:
    if not text:
        raise _bad("a prompt must not be empty: there is nothing to go on from")
    return text


def _ids(given: object) -> tuple[int, ...]:
    if not isinstance(given, list) or not _are_ids(given):
        raise _bad("prompt must be a text, a list of token ids, or a list of either")
    return tuple(given)


def _are_ids(given: list[Any]) -> bool:
    return bool(given) and all(type(one) is int for one in given)  # true is no id


def _bad(text: str) -> ApiError:
    return ApiError(400, "invalid_value", text, "prompt")
