"""Reads a request's body, bounded in size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.types import Receive

from rejoinder.config import GatewayConfig
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.generation import ClientGone

LONGEST_S = 60.0
"""A body that takes longer holds a place that others could have."""


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], config: GatewayConfig
) -> bytes:
    """Return the whole body.

    Raises:
        ApiError: 413, it is or says to be longer than ``max_body_bytes``; 408, it comes too slowly;
            415, it is compressed.
        ClientGone: the connection closed before its end.
    """
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding not in (b"", b"identity"):
        raise _compressed(encoding)
    limit = config.max_body_bytes
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > limit:
        raise _too_large(limit)
    seconds = min(LONGEST_S, config.request_timeout_s)
    try:
        async with asyncio.timeout(seconds):
            return await _read(receive, limit)
    except TimeoutError as error:
        text = f"the body did not arrive within {seconds:g} s"
        raise ApiError(408, "request_timeout", text) from error


async def _read(receive: Receive, limit: int) -> bytes:
    data = bytearray()  # one object however small the pieces are
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        if len(data) + len(piece) > limit:
            raise _too_large(limit)
        if not more and not data:
            return piece
        data += piece
        if not more:
            return bytes(data)


def _compressed(encoding: bytes) -> ApiError:
    return ApiError(
        415,
        "unsupported_encoding",
        f"the body is encoded as {encoding.decode('latin-1')!r}; send it as it is, without "
        "Content-Encoding",
    )


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        "request_too_large",
        f"the body is larger than {limit} bytes (gateway.max_body_bytes)",
    )
