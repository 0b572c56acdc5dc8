"""How arrays, messages and small records are stored in a column.

Arrays are little-endian: ids int32, logprobs float32 (relative error 6e-8, far below the parity
bound of 1e-4), version runs as int32 pairs (version, count). Records are UTF-8 JSON.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import orjson

from rejoinder.errors import JournalError
from rejoinder.types import Json, Message, Sampling, ToolCall, VersionRun, Vote

ID_BYTES = 4
LARGE_BYTES = 512
"""Texts and id arrays from this size on are stored once, by content hash."""


def _pack(typecode: str, values: Sequence[float]) -> bytes:
    try:
        packed = array(typecode, values)
    except (OverflowError, TypeError) as error:
        raise JournalError(f"not an array of numbers that fit a column: {error}") from error
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpack(typecode: str, data: bytes) -> list[Any]:
    packed = array(typecode)
    packed.frombytes(data)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()


def encode_ids(ids: Sequence[int]) -> bytes:
    """Pack token ids as int32."""
    return _pack("i", ids)


def decode_ids(data: bytes) -> list[int]:
    """Unpack token ids."""
    return _unpack("i", data)


def encode_logprobs(logprobs: Sequence[float]) -> bytes:
    """Pack log-probabilities as float32; values that are not finite are kept as they are."""
    return _pack("f", logprobs)


def decode_logprobs(data: bytes) -> list[float]:
    """Unpack log-probabilities."""
    return _unpack("f", data)


def encode_versions(runs: Sequence[VersionRun]) -> bytes:
    """Pack version runs as (version, count) pairs."""
    return _pack("i", [number for run in runs for number in (run.version, run.count)])


def decode_versions(data: bytes) -> tuple[VersionRun, ...]:
    """Unpack version runs."""
    flat: list[int] = _unpack("i", data)
    return tuple(VersionRun(*pair) for pair in zip(flat[::2], flat[1::2], strict=True))


def all_finite(values: Sequence[float]) -> bool:
    """Return whether no value is NaN or infinite; one such value makes the sum non-finite."""
    return math.isfinite(sum(values))


def digest_of(data: bytes) -> bytes:
    """Return the 16-byte content hash of ``data``."""
    return blake2b(data, digest_size=16).digest()


def scope_digest(tenant: str, key: str, user: str) -> bytes:
    """Return 8 bytes that stand for a scope in the indexes."""
    return blake2b(f"{tenant}\x1f{key}\x1f{user}".encode(), digest_size=8).digest()


Store = Callable[[bytes], bytes]
"""Keeps large data by content and returns its digest."""
Fetch = Callable[[bytes], bytes]
"""Returns the data of a digest."""


def _message_record(message: Message, store: Store) -> Json:
    record: Json = {"role": message.role}
    content = message.content
    if len(content) >= LARGE_BYTES:
        record["content_digest"] = store(content.encode()).hex()
    else:
        record["content"] = content
    if message.name is not None:
        record["name"] = message.name
    if message.tool_call_id is not None:
        record["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        record["tool_calls"] = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    if message.reasoning is not None:
        record["reasoning"] = message.reasoning
    return record


def encode_messages(messages: Sequence[Message], store: Store) -> bytes:
    """Write messages as JSON; long contents go to ``store`` and leave their digest."""
    return orjson.dumps([_message_record(message, store) for message in messages])


def _message(record: Json, fetch: Fetch) -> Message:
    digest = record.pop("content_digest", None)
    if digest is not None:
        record["content"] = fetch(bytes.fromhex(digest)).decode()
    record["tool_calls"] = tuple(ToolCall(*call) for call in record.get("tool_calls", ()))
    return Message(**record)


def decode_messages(data: bytes, fetch: Fetch) -> tuple[Message, ...]:
    """Read messages; ``fetch`` returns the long contents."""
    return tuple(_message(record, fetch) for record in orjson.loads(data))


def encode_sampling(sampling: Sampling) -> bytes:
    """Write sampling settings as JSON."""
    return orjson.dumps(sampling, option=orjson.OPT_NON_STR_KEYS)


def decode_sampling(data: bytes) -> Sampling:
    """Read sampling settings."""
    record = orjson.loads(data)
    record["stop"] = tuple(record["stop"])
    record["logit_bias"] = {int(key): bias for key, bias in record["logit_bias"].items()}
    return Sampling(**record)


def valid_text(text: str) -> str:
    """Return text with U+FFFD for halves of surrogate pairs, which no column takes.

    What judges and endpoints say comes from JSON that may hold such halves.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def encode_votes(votes: Sequence[Vote]) -> bytes:
    """Write votes as JSON; values that are not finite become null."""
    return orjson.dumps([replace(vote, reason=valid_text(vote.reason)) for vote in votes])


def decode_votes(data: bytes) -> tuple[Vote, ...]:
    """Read votes."""
    return tuple(Vote(**record) for record in orjson.loads(data))


def encode_json(value: Json) -> bytes:
    """Write a record as JSON; NaN and infinity become null."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def decode_json(data: bytes) -> Json:
    """Read a record."""
    record: Json = orjson.loads(data)
    return record
