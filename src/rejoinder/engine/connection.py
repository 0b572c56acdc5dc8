"""A kept HTTP connection to an engine, with one request at a time.

Every answer is a call to an engine, and a general HTTP client costs a gateway a tenth of its time:
for redirects, proxies, cookies and encodings, none of which an engine has. What is needed is a
parser, which is the one that the gateway's server uses.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

READ_AHEAD = 1 << 16
"""Bytes of a response that wait for their reader; then no more are read."""


class Connection(asyncio.Protocol):
    """One connection. An error ends it: nothing but ``close`` may follow."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answering = False
        self._in_body = False
        self._parts: list[bytes] = []
        self._bytes = 0
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._kept = True

    # --- for callers --------------------------------------------------------------------------

    async def send(self, request: bytes, seconds: float | None) -> int:
        """Send a whole request; returns the status once the response has begun.

        Args:
            request: head and body.
            seconds: for the whole response; None: without end.

        Raises:
            TimeoutError: it has not come within that time; so may ``read`` and ``rest``.
            OSError: the connection has broken, or carries no HTTP; likewise.
        """
        assert self._transport is not None
        self._answering, self._in_body = True, False
        if seconds is not None:
            self._deadline = self._loop.call_later(seconds, self._fail, TimeoutError())
        self._transport.write(request)
        while not self._in_body:
            await self._more()
        return self._parser.get_status_code()

    async def read(self) -> bytes:
        """Return what has come of the body since the last call, waiting for some; b"" at the end.

        What came before an error is returned before it is raised.
        """
        while not self._parts:
            if not self._answering:
                return b""
            await self._more()
        data = b"".join(self._parts)
        self._parts.clear()
        if self._bytes > READ_AHEAD and self._transport is not None:
            self._transport.resume_reading()
        self._bytes = 0
        return data

    async def rest(self) -> bytes:
        """Return what is left of the body."""
        data = bytearray()
        while piece := await self.read():
            data += piece
        return bytes(data)

    def free(self) -> bool:
        """Say that the caller is done; returns whether another request may follow."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        return self.reusable

    @property
    def reusable(self) -> bool:
        """Whether it is open and nothing is on its way."""
        return self._kept and not self._answering and not self._parts and self._error is None

    def close(self) -> None:
        """Close it, which is how an engine learns that nobody listens any more."""
        if self._transport is not None:
            self._transport.close()

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # --- what arrives -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._fail(exc or ConnectionResetError("the engine closed the connection"))

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        if not self._answering:
            self._fail(ConnectionError("it sent something unasked"))
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"this is no HTTP: {error}"))
            self.close()
            return
        if self._bytes > READ_AHEAD and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def on_headers_complete(self) -> None:
        """The parser has read a response's head."""
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        """The parser has read a piece of a body."""
        self._parts.append(body)
        self._bytes += len(body)

    def on_message_complete(self) -> None:
        """The parser has read a response to its end."""
        self._answering = False
        self._kept = self._parser.should_keep_alive()

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
