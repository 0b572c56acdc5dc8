"""How HTTP is served: uvicorn's protocol, with limits that it has not.

They hold before the application sees a request, for connections that never become one:

- A request's head is bounded in bytes, and so is what comes between two pieces of a body.
- A head that has begun, and what is left of a body after its response, come within a time.
- A client that takes next to nothing of what is written to it is cut off after a time. Until then
  its transport holds no more than a whole response, or of a stream asyncio's high-water mark.
- Connections are bounded in number.
- A request that is sent before the answer to the one before it has been taken is not served: the
  connection ends with that answer. Served in turn, it would hide that its client has gone away; and
  its own answer would hold its place while it waited behind what nobody reads.

And what a client offers to go over to (HTTP/2, a WebSocket) is declined as HTTP has it, by serving
its request as it is. The parser below takes what follows the head of such a request for the other
protocol's: its body would be lost, and then be read as a request of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from rejoinder.config import GatewayConfig
from rejoinder.gateway.errors import ApiError

HEAD_S = 30.0
"""For a request's head; and for the rest of a body whose request has been answered."""
UNREAD_S = 60.0
PARTS = 16
"""In each ``UNREAD_S`` a client takes one of so many parts of what waited for it, or all."""
LINGER_S = 2.0
"""How long a client that is refused may go on sending."""
KEEP_ALIVE_S = 75
BACKLOG = 2048
"""Connections that the kernel holds until they are accepted."""
_OF_CONNECTIONS = frozenset((b"close", b"keep-alive"))
"""What ``Connection`` says of the connection itself."""


class HttpConfig(uvicorn.Config):
    """uvicorn's configuration for a gateway."""

    def __init__(
        self, app: ASGIApp, gateway: GatewayConfig, refused: Callable[[ApiError], None]
    ) -> None:
        """``refused`` is told of refusals that the application does not see."""
        super().__init__(
            app,
            http=Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self.gateway = gateway
        self.refused = refused


class _Together(asyncio.Transport):
    """What a response is written to: its head waits for the first bytes of its body.

    So ASGI has it. Each write wakes the client, which on few cores takes the writer's own.
    """

    def __init__(self, transport: asyncio.Transport, cycle: RequestResponseCycle) -> None:
        super().__init__()
        self._transport = transport
        self._cycle = cycle
        self._head: bytes | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, or keep the head: the first thing that comes when the response has started."""
        if self._head is None and self._cycle.response_started:
            self._head = bytes(data)
            return
        if self._head:
            data, self._head = self._head + data, b""
        self._transport.write(data)

    def is_closing(self) -> bool:
        """See ``asyncio.Transport``."""
        return self._transport.is_closing()

    def close(self) -> None:
        """See ``asyncio.Transport``."""
        self._transport.close()


class Protocol(HttpToolsProtocol):
    """One connection."""

    config: HttpConfig

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limit = self.config.gateway.max_head_bytes
        self._counted = 0
        """Bytes since the head began or the last piece of the body came."""
        self._head_bytes = 0
        self._in_head = False
        self._in_body = False
        self._offered = False
        """The request that has begun offers another protocol; it is read again without that."""
        self._deaf = False
        self._refusal: ApiError | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # --- the connection -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or refuse it where there are too many."""
        super().connection_made(transport)
        most = self.config.gateway.max_connections
        if len(self.connections) > most:
            self._refuse(ApiError(503, "too_many_connections", f"{most} connections are open here"))
        else:
            self._within(KEEP_ALIVE_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; who still writes to it goes on and finds it gone."""
        self._within(None)
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Give the client time to take what waits for it."""
        super().pause_writing()
        if self._unread is None:
            waiting = self.transport.get_write_buffer_size()
            self._expect_reading(waiting, waiting // PARTS)

    def _expect_reading(self, waiting: int, part: int) -> None:
        """Cut the client off after a time unless a part of what waits has gone by then."""
        self._unread = self.loop.call_later(UNREAD_S, self._check_reading, waiting - part, part)

    def _check_reading(self, most: int, part: int) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waiting > most:
            self.transport.abort()
        else:
            self._expect_reading(waiting, part)

    def resume_writing(self) -> None:
        """Note that the client has taken most of it."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _within(self, seconds: float | None) -> None:
        """End the connection if nothing more is heard for so long; None: no more."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if seconds is not None:
            self._deadline = self.loop.call_later(seconds, self.transport.close)

    # --- what arrives -------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and see whether it keeps the limits."""
        if self._deaf or self.transport.is_closing():
            return
        self._counted += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:  # told to its sender only, who could fill the log with it
            self._refuse(self._refusal or ApiError(400, "invalid_http", "this is no valid HTTP"))
        if self._deaf or self.transport.is_closing():
            return
        if self._counted > self._limit and (self._in_head or self._in_body):
            self._refuse(_head_too_large(self._limit))
        elif self._deadline is None and not self._in_body and not self._is_answering():
            self._within(HEAD_S if self._in_head else KEEP_ALIVE_S)

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._offered:
                head = self._plain_head()
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
                self._parse(head + data[upgrade.args[0] :])

    def _plain_head(self) -> bytes:
        """Return the head of the request that has begun, without what it offers."""
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                kept = [one for one in value.split(b",") if one.strip().lower() in _OF_CONNECTIONS]
                lines += [b"connection: " + b",".join(kept)] if kept else []
            elif name != b"upgrade":
                lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def on_message_begin(self) -> None:
        """Begin a request, unless the answer to the one before it has not been taken."""
        if self._is_answering():
            self.cycle.keep_alive = False
            self._deaf = True
            return
        if self.flow.write_paused:
            self._deaf = True
            self.transport.close()  # what waits is still sent, within its time
            return
        if self._deadline is not None:
            self._within(None)
        self._in_head = True
        self._offered = False
        self._counted = self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the path."""
        self._head_bytes += len(url)
        if not self._deaf:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer behind a body in chunks."""
        self._head_bytes += len(name) + len(value)
        if not self._deaf:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request to the application."""
        if self._deaf:
            return
        self._offered = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._offered:
            return
        self._in_head, self._in_body, self._counted = False, True, 0
        if self._deadline is not None:
            self._within(None)
        if self._head_bytes > self._limit:
            self._refusal = _head_too_large(self._limit)
            raise self._refusal
        super().on_headers_complete()
        if self.parser.get_method() != b"HEAD":  # which has no body
            self.cycle.transport = _Together(self.transport, self.cycle)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._counted = 0
        if not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of the body."""
        if self._deaf or self._offered:
            return
        self._in_body = False
        super().on_message_complete()
        if self.cycle.response_complete:  # it was refused before it had come
            self._within(KEEP_ALIVE_S)

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one."""
        super().on_response_complete()
        if self._in_body and not self.transport.is_closing():
            self._within(HEAD_S)  # of a body that was refused

    # --- refusals -----------------------------------------------------------------------------

    def _refuse(self, error: ApiError) -> None:
        """Say why, and end; what still arrives is dropped for a moment.

        A connection that is closed while its client sends is reset, and the client may never see
        what it was told.
        """
        self.config.refused(error)
        self._deaf = True
        if self._is_answering():
            started = self.cycle.response_started
            self.cycle.disconnected = True  # nothing it sends goes out any more
            self.cycle.waiting_for_100_continue = False  # nor what asks its client to go on
            self.cycle.message_event.set()
            if started:
                self.transport.close()
                return
        body = error.body()
        head = [STATUS_LINE[error.status], b"content-type: application/json\r\n"]
        head += [f"{name}: {value}\r\n".encode() for name, value in error.headers().items()]
        end = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(b"".join([*head, end, body]))
        self.transport.write_eof()
        self._within(LINGER_S)


def _head_too_large(limit: int) -> ApiError:
    return ApiError(
        431,
        "headers_too_large",
        f"request line and headers are larger than {limit} bytes (gateway.max_head_bytes)",
    )
