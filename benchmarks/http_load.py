"""A lean HTTP client for load: it shares the machine with what it measures."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass

import orjson

_TEXT = re.compile(rb'"content": ?"[^"]')


@dataclass(slots=True)
class Reply:
    """One response."""

    status: int
    body: bytes
    """Chunk framing of streams included."""
    seconds: float
    first_s: float | None = None
    """Until the first text of a stream."""

    def answer(self) -> str:
        """Return the text of the first choice of a whole completion."""
        text: str = orjson.loads(self.body)["choices"][0]["message"]["content"]
        return text

    def prompt_tokens(self) -> int:
        """Return how long the prompt of a whole completion was."""
        count: int = orjson.loads(self.body)["usage"]["prompt_tokens"]
        return count

    def tokens(self) -> int:
        """Return how many pieces of text a stream had."""
        return self.body.count(b'"delta":{"content":') - 1


class Connection(asyncio.Protocol):
    """One kept-alive connection with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._done: asyncio.Future[None] | None = None
        self._end: int | None = None  # where the response ends, once its length is known
        self._chunked = False
        self._first: float | None = None

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect to the gateway."""
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(cls, "127.0.0.1", port)
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, _error: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the gateway closed the connection"))

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._buffer += data
        if self._end is None and not self._chunked:
            head = self._buffer.find(b"\r\n\r\n")
            if head < 0:
                return
            lines = bytes(self._buffer[:head]).lower()
            self._chunked = b"transfer-encoding: chunked" in lines
            if not self._chunked:
                length = lines.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0]
                self._end = head + 4 + int(length)
        if self._chunked and self._first is None and _TEXT.search(self._buffer):
            self._first = time.perf_counter()
        complete = (
            self._buffer.endswith(b"\r\n0\r\n\r\n")
            if self._chunked
            else len(self._buffer) >= (self._end or 0)
        )
        if complete and self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def request(self, method: str, path: str, body: bytes = b"") -> Reply:
        """Send a request and wait for its whole response."""
        self._buffer.clear()
        self._end, self._chunked, self._first = None, False, None
        self._done = asyncio.get_running_loop().create_future()
        assert self._transport is not None
        started = time.perf_counter()  # uvloop's own clock counts whole milliseconds
        self._transport.write(
            b"%b %b HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (method.encode(), path.encode(), len(body), body)
        )
        await self._done
        seconds = time.perf_counter() - started
        head, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        first_s = None if self._first is None else self._first - started
        return Reply(int(head[9:12]), rest, seconds, first_s)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()
