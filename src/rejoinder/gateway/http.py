"""How HTTP is served: uvicorn's protocol, with limits that it has not.

They hold before the application sees a request, for connections that never become one:

- A request's head is bounded in bytes, and so is what comes between two pieces of a body.
- A head that has begun, and what is left of a body after its response, come within a time.
- A client that takes nothing of what is written to it is cut off after a time. Until then its
  transport holds no more than asyncio's high-water mark, for writing waits.
- Connections are bounded in number.
- A request that is sent before the answer to the one before it is not served: the connection ends
  with that answer. Served in turn, it would hide that its client has gone away.

And one gap of it is closed: a request that offers another protocol, as Java's own client offers
HTTP/2 with every first request, is served as it is, with its body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from rejoinder.config import GatewayConfig
from rejoinder.gateway.errors import ApiError

HEAD_S = 30.0
"""For a request's head; and for the rest of a body whose request has been answered."""
UNREAD_S = 60.0
"""How long a client may take nothing of what waits for it."""
LINGER_S = 2.0
"""How long a client that is refused may go on sending."""
KEEP_ALIVE_S = 75
BACKLOG = 2048
"""Connections that the kernel holds until they are accepted."""
_FRAMING = (b"content-length", b"transfer-encoding")
"""Headers that say where a body ends."""


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
        self._deaf = False
        self._framing = b""
        """Of the body that the parser does not see, behind a head that offers another protocol."""
        self._repeats = False
        """The parser is fed what has been heard already."""
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
            self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)

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
        """Feed the parser, which ends a request that offers another protocol with its head.

        Offers are not taken up. What follows such a head goes to a new parser, as the body that it
        announces or as the next request.

        Raises:
            HttpParserError: it is no HTTP.
        """
        while data and not self._deaf:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = data[offer.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                if self._framing:
                    self._repeats = True
                    self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % self._framing)
                    self._repeats, self._framing = False, b""
            else:
                return

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def on_message_begin(self) -> None:
        """Begin a request, unless the one before it is still being answered."""
        if self._repeats:
            return
        if self._is_answering():
            self.cycle.keep_alive = False
            self._deaf = True
            return
        if self._deadline is not None:
            self._within(None)
        self._in_head = True
        self._counted = self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the path."""
        if self._repeats:
            return
        self._head_bytes += len(url)
        if not self._deaf:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer behind a body in chunks."""
        if self._repeats:
            return
        self._head_bytes += len(name) + len(value)
        if not self._deaf:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request to the application."""
        if self._deaf or self._repeats:
            return
        if self.parser.should_upgrade():
            framing = [one for one in self.headers if one[0] in _FRAMING]
            if any(value.strip(b"0") for _, value in framing):
                self._framing = b"".join([b"%b: %b\r\n" % one for one in framing])
        self._in_head, self._in_body, self._counted = False, True, 0
        if self._deadline is not None:
            self._within(None)
        if self._head_bytes > self._limit:
            self._refusal = _head_too_large(self._limit)
            raise self._refusal
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._counted = 0
        if not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of the body."""
        if self._deaf or self._framing:
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
