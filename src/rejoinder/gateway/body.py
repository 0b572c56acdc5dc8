"""The body of a chat completion request: fields, types and ranges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from rejoinder.chat.unicode import mend_escapes
from rejoinder.gateway.errors import ApiError
from rejoinder.types import Json, Sampling

MAX_CHOICES = 32
MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_USER_CHARS = 512
MAX_BIASES = 1024
LARGEST_SEED = (1 << 63) - 1

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

    @property
    def shown_tools(self) -> Sequence[Json] | None:
        """The tools that the prompt names."""
        return None if self.tool_choice == "none" else self.tools or None


KNOWN = frozenset(ChatBody.__struct_fields__)
IGNORED = frozenset(
    (
        "audio", "functions", "function_call", "modalities", "parallel_tool_calls", "prediction",
        "reasoning_effort", "safety_identifier", "service_tier", "store",
        "verbosity", "web_search_options",
    )
)  # fmt: skip
"""Fields of the API without an effect here; like unknown ones they are tolerated and counted."""

_TOKEN_ID = re.compile(r"[0-9]{1,9}")
_PLACE = re.compile(r" - at `\$\.?(.*)`$")


def parse_body(data: bytes) -> tuple[ChatBody, list[str]]:
    """Decode and check a request's body.

    Returns:
        The body, and the names of its fields that have no effect (``other`` for unknown ones).

    Raises:
        ApiError: 400, not JSON, a wrong type, a value out of range; ``param`` names the field.
    """
    raw = parse_object(data)
    try:
        body = msgspec.convert(raw, ChatBody)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    _check(body)
    without_effect = raw.keys() - KNOWN
    return body, [name if name in IGNORED else "other" for name in without_effect]


def parse_object(data: bytes) -> Json:
    """Decode a JSON object; halves of surrogate pairs become U+FFFD.

    Raises:
        ApiError: 400, not JSON, or no object.
    """
    try:
        raw = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, "invalid_json", f"the body is not valid JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ApiError(400, "invalid_json", "the body must be a JSON object")
    return raw


def _decode(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        if b"\\u" not in data:
            raise
    return msgspec.json.decode(mend_escapes(data.decode()))


def _invalid(text: str) -> ApiError:
    place = _PLACE.search(text)
    missing = re.search(r"missing required field `(\w+)`", text)
    param = place.group(1) if place else missing.group(1) if missing else None
    said = _PLACE.sub("", text)
    return ApiError(400, "invalid_value", f"{param}: {said}" if param else said, param)


def _check(body: ChatBody) -> None:
    if body.response_format is not None and body.response_format.type != "text":
        raise ApiError(
            400,
            "unsupported_parameter",
            f"response_format of type {body.response_format.type!r} is not served; ask for the "
            "form in words, or leave response_format out",
            "response_format",
        )
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "invalid_value", "top_logprobs needs logprobs: true", "top_logprobs")


def logit_bias(body: ChatBody, vocab_size: int) -> dict[int, float]:
    """Return ``logit_bias`` by token id.

    Raises:
        ApiError: 400, a key is not a token id.
    """
    biases: dict[int, float] = {}
    for key, bias in (body.logit_bias or {}).items():
        id_ = int(key) if _TOKEN_ID.fullmatch(key) else vocab_size
        if id_ >= vocab_size:
            raise ApiError(
                400,
                "invalid_value",
                f"the keys of logit_bias must be token ids, 0 to {vocab_size - 1}",
                "logit_bias",
            )
        biases[id_] = bias
    return biases


def sampling(body: ChatBody, max_tokens: int, vocab_size: int) -> Sampling:
    """Return how the client wants its answer sampled, with the API's defaults.

    Raises:
        ApiError: as ``logit_bias`` does.
    """
    stop = body.stop
    top_k = max(body.top_k or 0, 0)
    return Sampling(
        max_tokens=max_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=top_k if top_k < vocab_size else 0,  # so many are all of them
        min_p=body.min_p or 0.0,
        seed=body.seed,
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        frequency_penalty=body.frequency_penalty or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        logit_bias=logit_bias(body, vocab_size),
    )


def json_schema() -> Json:
    """Return the body's JSON schema for the API description."""
    (schema,), components = msgspec.json.schema_components(
        [ChatBody], ref_template="#/components/schemas/{name}"
    )
    return {"schema": schema, "components": components}
