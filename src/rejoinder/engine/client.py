"""An engine in another process, over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from rejoinder.engine import wire
from rejoinder.engine.base import (
    EngineInfo,
    GenerateRequest,
    ScoreRequest,
    ScoreResult,
    TokenChunk,
    VersionSource,
)
from rejoinder.engine.connection import Connection
from rejoinder.engine.gathering import joined
from rejoinder.errors import EngineError, EngineTimeout, EngineUnavailable

_CONNECT_S = 5.0
_INFO_S = 5.0
_KEEP_S = 30.0
"""How long an idle connection is kept: less than the server does."""
_GRACE_S = 5.0
"""How much longer than a request's own deadline the client waits: the engine's word comes first."""
_END_S = 1.0
"""How long a whole answer waits for the end of its response, to use the connection again."""

_Answer = TypeVar("_Answer")


class HttpEngine:
    """Implements ``Engine`` by calls to ``rejoinder.engine.server``.

    Proxies of the environment are not used: the engine is on this machine or a trusted one.
    """

    def __init__(self, url: str) -> None:
        """``url`` is that of a server: ``http://host:port``, or ``https`` where a proxy has TLS."""
        self._url = url.rstrip("/")
        parts = urlsplit(self._url)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host, self._port = parts.hostname or "", parts.port or (443 if self._tls else 80)
        self._name, self._path = parts.netloc, parts.path
        self._closed = False
        self._open: set[Connection] = set()
        self._idle: deque[tuple[float, Connection]] = deque()
        """Since when, and which; the one that was used last is used next."""

    async def info(self) -> EngineInfo:
        """See ``Engine.info``."""
        return await self._call("GET", "info", None, EngineInfo, seconds=_INFO_S)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        """See ``Engine.generate``."""
        timeout = None if request.deadline_s is None else request.deadline_s + _GRACE_S
        reader = wire.FrameReader()
        async with self._request("POST", "generate", request, timeout) as connection:
            while data := await connection.read():
                come = reader.feed(data)
                for chunk in joined(come) if request.whole else come:
                    yield chunk
                    if chunk.finish_reason is not None:
                        await _read_to_end(connection)
                        return
        raise EngineUnavailable(f"the engine at {self._url} went away while it was answering")

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """See ``Engine.score``."""
        timeout = None if request.deadline_s is None else request.deadline_s + _GRACE_S
        return await self._call("POST", "score", request, ScoreResult, seconds=timeout)

    async def load(self, source: VersionSource, *, live: bool) -> None:
        """See ``Engine.load``."""
        await self._send("POST", "load", wire.LoadRequest(source, live))

    async def unload(self, policy: str, version: int) -> None:
        """See ``Engine.unload``."""
        await self._send("POST", "unload", wire.UnloadRequest(policy, version))

    async def close(self) -> None:
        """See ``Engine.close``."""
        self._closed = True
        for connection in (*self._open, *(idle for _, idle in self._idle)):
            connection.close()
        self._idle.clear()

    async def _call(
        self,
        method: str,
        path: str,
        body: object,
        answer: type[_Answer],
        *,
        seconds: float | None = None,
    ) -> _Answer:
        data = await self._send(method, path, body, seconds)
        try:
            return msgspec.msgpack.decode(data, type=answer)
        except msgspec.MsgspecError as error:
            raise EngineError(f"the engine's answer cannot be read: {error}") from error

    async def _send(
        self, method: str, path: str, body: object, seconds: float | None = None
    ) -> bytes:
        async with self._request(method, path, body, seconds) as connection:
            return await connection.rest()

    @contextlib.asynccontextmanager
    async def _request(
        self, method: str, path: str, body: object, seconds: float | None
    ) -> AsyncIterator[Connection]:
        """Send a request; failures of transport inside the block become engine errors.

        Leaving the block before the end of the response closes the connection, which is how the
        server learns that nobody listens any more.
        """
        data = wire.encode(body)
        head = (
            f"{method} {self._path}/{path} HTTP/1.1\r\nhost: {self._name}\r\n"
            f"content-type: {wire.CONTENT_TYPE}\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        connection: Connection | None = None
        try:
            connection = await self._connected()
            self._open.add(connection)
            status = await connection.send(head.encode() + data, seconds)
            if status != 200:
                raise wire.decode_error(await connection.rest(), status)
            yield connection
        except TimeoutError as error:
            raise EngineTimeout(f"the engine at {self._url} gave no answer in time") from error
        except OSError as error:
            raise EngineUnavailable(
                f"the engine at {self._url} cannot be reached: {type(error).__name__}: {error}"
            ) from error
        finally:
            if connection is not None:
                self._open.discard(connection)
                self._put_back(connection)

    async def _connected(self) -> Connection:
        if self._closed:
            raise EngineUnavailable("this connection to the engine is closed")
        loop = asyncio.get_running_loop()
        while self._idle:
            since, connection = self._idle.pop()
            if connection.reusable and since > loop.time() - _KEEP_S:
                return connection
            connection.close()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await loop.create_connection(
                    Connection, self._host, self._port, ssl=self._tls
                )
        except TimeoutError as error:
            raise EngineUnavailable(f"no connection to the engine at {self._url}") from error
        return connection

    def _put_back(self, connection: Connection) -> None:
        """Keep a connection for the next request, and close those that have been idle for long."""
        if self._closed or not connection.free():
            connection.close()
            return
        now = asyncio.get_running_loop().time()
        self._idle.append((now, connection))
        while self._idle[0][0] < now - _KEEP_S:
            self._idle.popleft()[1].close()


async def _read_to_end(connection: Connection) -> None:
    """Read what follows the last chunk. Nothing in it can undo an answer that is whole."""
    if connection.reusable:
        return  # it came with the chunk
    with contextlib.suppress(OSError):
        async with asyncio.timeout(_END_S):
            await connection.rest()
