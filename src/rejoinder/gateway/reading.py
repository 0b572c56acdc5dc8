"""Reads a request's body, bounded."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Receive

from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.generation import ClientGone


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], limit: int) -> bytes:
    """Return the whole body.

    Raises:
        ApiError: 413, it is or says to be longer than ``limit`` bytes.
        ClientGone: the connection closed before its end.
    """
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        "request_too_large",
        f"the body is larger than {limit} bytes (gateway.max_body_bytes)",
    )
