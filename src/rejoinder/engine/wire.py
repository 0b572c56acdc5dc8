"""What engine server and client say to each other: MessagePack, in length-prefixed frames.

A frame is 4 bytes of length (big-endian) and a body; the body's first byte says what follows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from rejoinder import errors
from rejoinder.engine.base import TokenChunk, VersionSource
from rejoinder.errors import EngineError, EngineUnavailable

CONTENT_TYPE = "application/msgpack"
"""Not a type that a web page may send to another site: browsers must ask first, and we say no."""

_CHUNK = b"c"
_ERROR = b"e"
_LENGTH = struct.Struct(">I")
_MOST_BYTES = 64 << 20
_NO_ENGINE_BEHIND = {502, 503, 504}

_encoder = msgspec.msgpack.Encoder()
_chunks = msgspec.msgpack.Decoder(TokenChunk)


class WireError(msgspec.Struct):
    """An ``EngineError`` in transit."""

    status: int
    code: str
    message: str


class LoadRequest(msgspec.Struct):
    """Arguments of ``Engine.load``."""

    source: VersionSource
    live: bool


class UnloadRequest(msgspec.Struct):
    """Arguments of ``Engine.unload``."""

    policy: str
    version: int


_errors = msgspec.msgpack.Decoder(WireError)
_classes: dict[str, type[EngineError]] = {
    found.code: found
    for found in vars(errors).values()
    if isinstance(found, type) and issubclass(found, EngineError)
}


def encode(value: object) -> bytes:
    """Encode a dataclass, struct or plain value."""
    return _encoder.encode(value)


def encode_error(error: EngineError) -> bytes:
    """Encode an error with what an API client should see."""
    return encode(WireError(error.status, error.code, str(error)))


def decode_error(data: bytes | bytearray, status: int = 200) -> EngineError:
    """Return the error of the class that has the code; status and code survive in any case.

    ``status``: of the response. Where a proxy says that there is no engine behind it, so is this.
    """
    try:
        wire = _errors.decode(data)
    except msgspec.MsgspecError:
        kind = EngineUnavailable if status in _NO_ENGINE_BEHIND else EngineError
        return kind("the engine answered with something that is not its protocol")
    error = _classes.get(wire.code, EngineError)(wire.message)
    error.status, error.code = wire.status, wire.code
    return error


def chunk_frame(chunk: TokenChunk) -> bytes:
    """Return the frame of a chunk."""
    return _frame(_CHUNK, encode(chunk))


def error_frame(error: EngineError) -> bytes:
    """Return the frame of an error, the last one of a stream."""
    return _frame(_ERROR, encode_error(error))


def _frame(kind: bytes, body: bytes) -> bytes:
    return _LENGTH.pack(len(body) + 1) + kind + body


class FrameReader:
    """Cuts a stream of bytes into chunks, whatever pieces it arrives in."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[TokenChunk]:
        """Take bytes; yield the chunks that are complete.

        Raises:
            EngineError: the stream said so, or is not of this protocol.
        """
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) >= (start := at + _LENGTH.size):
                (size,) = _LENGTH.unpack_from(buffer, at)
                if not 0 < size <= _MOST_BYTES:
                    raise EngineError(f"the engine sent a frame of {size} bytes: not its protocol")
                end = start + size
                if len(buffer) < end:
                    return
                kind, body, at = buffer[start], buffer[start + 1 : end], end
                if kind == _ERROR[0]:
                    raise decode_error(body)
                yield _decode_chunk(body)
        finally:
            del buffer[:at]  # once for all frames: what is behind them moves with each


def _decode_chunk(body: bytearray) -> TokenChunk:
    try:
        return _chunks.decode(body)
    except msgspec.MsgspecError as error:
        raise EngineError(f"the engine sent a frame that cannot be read: {error}") from error
