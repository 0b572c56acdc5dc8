"""JSON bodies of requests: decoding, and faults that name their field."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Any, TypeVar

import msgspec

from rejoinder.chat.unicode import mend_escapes
from rejoinder.errors import ContextLengthExceeded
from rejoinder.gateway.errors import ApiError
from rejoinder.types import Json

Body = TypeVar("Body", bound=msgspec.Struct)
_PLACE = re.compile(r" - at `\$\.?(.*)`$")
_MISSING = re.compile(r"missing required field `(\w+)`")


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


def convert(raw: Json, kind: type[Body]) -> Body:
    """Check an object's fields, types and ranges.

    Raises:
        ApiError: 400; ``param`` names the field.
    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error


def _invalid(text: str) -> ApiError:
    place, missing = _PLACE.search(text), _MISSING.search(text)
    param = place.group(1) if place else missing.group(1) if missing else None
    said = _PLACE.sub("", text)
    return ApiError(400, "invalid_value", f"{param}: {said}" if param else said, param)


def without_effect(raw: Json, kind: type[msgspec.Struct], ignored: Collection[str]) -> list[str]:
    """Return the names of an object's fields that ``kind`` lacks, for counting.

    Only those that ``ignored`` lists keep their names; ``other`` stands for the rest, or clients
    could make counters without end.
    """
    unknown = raw.keys() - _fields(kind)
    return [name if name in ignored else "other" for name in unknown]


@cache
def _fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(kind.__struct_encode_fields__)


def check_count(messages: Collection[object], most: int) -> None:
    """Refuse more messages than there can be tokens, before any work is done on them.

    Raises:
        ContextLengthExceeded: as said.
    """
    if len(messages) > most:  # each message is a token at the very least
        raise ContextLengthExceeded(
            f"{len(messages)} messages cannot fit this model's context of {most} tokens: send fewer"
        )
