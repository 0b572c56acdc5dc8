"""Fields that several of OpenAI's APIs share: their types and ranges, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.request import (
    LARGEST_SEED,
    MAX_BIASES,
    MAX_CHOICES,
    MAX_STOP_CHARS,
    MAX_STOPS,
    MAX_USER_CHARS,
)

Positive = Annotated[int, Meta(ge=1)]
Choices = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
Temperature = Annotated[float, Meta(ge=0.0, le=2.0)]
TopP = Annotated[float, Meta(gt=0.0, le=1.0)]
TopK = Annotated[int, Meta(ge=-1)]
MinP = Annotated[float, Meta(ge=0.0, le=1.0)]
Seed = Annotated[int, Meta(ge=-LARGEST_SEED, le=LARGEST_SEED)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
User = Annotated[str, Meta(max_length=MAX_USER_CHARS)]
_Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
Stop = _Stop | Annotated[list[_Stop], Meta(max_length=MAX_STOPS)]
LogitBias = Annotated[
    dict[str, Annotated[float, Meta(ge=-100.0, le=100.0)]], Meta(max_length=MAX_BIASES)
]
_TOKEN_ID = re.compile(r"[0-9]{1,9}")


class StreamOptions(Struct):
    """``stream_options``."""

    include_usage: bool | None = None


def stops(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the strings before which answers end."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def biases(given: Mapping[str, float] | None) -> dict[int, float]:
    """Return ``logit_bias`` by token id.

    Raises:
        ApiError: 400, a key is no id.
    """
    return {_token_id(key): bias for key, bias in (given or {}).items()}


def _token_id(key: str) -> int:
    if not _TOKEN_ID.fullmatch(key):
        text = "the keys of logit_bias must be token ids"
        raise ApiError(400, "invalid_value", text, "logit_bias")
    return int(key)
