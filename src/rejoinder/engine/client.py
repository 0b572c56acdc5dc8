"""An engine in another process, over HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

import aiohttp
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
from rejoinder.errors import EngineError, EngineTimeout, EngineUnavailable

_CONNECT_S = 5.0
_INFO_S = 5.0
_GRACE_S = 5.0
"""How much longer than a request's own deadline the client waits: the engine's word comes first."""

_Answer = TypeVar("_Answer")


class HttpEngine:
    """Implements ``Engine`` by calls to ``rejoinder.engine.server``.

    Proxies of the environment are not used: the engine is on this machine or a trusted one.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._open: set[aiohttp.ClientResponse] = set()

    async def info(self) -> EngineInfo:
        """See ``Engine.info``."""
        return await self._call("GET", "info", None, EngineInfo, seconds=_INFO_S)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        """See ``Engine.generate``."""
        timeout = None if request.deadline_s is None else request.deadline_s + _GRACE_S
        reader = wire.FrameReader()
        async with self._request("POST", "generate", request, timeout) as response:
            async for data in response.content.iter_any():
                for chunk in reader.feed(data):
                    yield chunk
                    if chunk.finish_reason is not None:
                        # Reading to the end gives the connection back to the pool.
                        await response.read()
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
        for response in list(self._open):
            response.close()
        if self._session is not None:
            await self._session.close()

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
        async with self._request(method, path, body, seconds) as response:
            return await response.read()

    @contextlib.asynccontextmanager
    async def _request(
        self, method: str, path: str, body: object, seconds: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; failures of transport inside the block become engine errors.

        Leaving the block before the end of the response closes the connection, which is how the
        server learns that nobody listens any more.
        """
        response: aiohttp.ClientResponse | None = None
        try:
            response = await self._connected().request(
                method,
                f"{self._url}/{path}",
                data=wire.encode(body),
                headers={"Content-Type": wire.CONTENT_TYPE},
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_S),
                allow_redirects=False,  # a redirect could lead off this machine
            )
            self._open.add(response)
            if response.status != 200:
                raise wire.decode_error(await response.read(), response.status)
            yield response
        except aiohttp.ServerTimeoutError as error:
            raise EngineUnavailable(f"no connection to the engine at {self._url}") from error
        except TimeoutError as error:
            raise EngineTimeout(f"the engine at {self._url} gave no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineUnavailable(
                f"the engine at {self._url} cannot be reached: {type(error).__name__}: {error}"
            ) from error
        finally:
            if response is not None:
                self._open.discard(response)
                response.close()

    def _connected(self) -> aiohttp.ClientSession:
        if self._closed:
            raise EngineUnavailable("this connection to the engine is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30), trust_env=False
            )
        return self._session
