"""The engine's HTTP face: a Starlette application around any engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rejoinder.engine import wire
from rejoinder.engine.base import Engine, GenerateRequest, ScoreRequest, TokenChunk
from rejoinder.engine.gathering import gathered
from rejoinder.errors import EngineError, EngineUnavailable, InvalidRequest

_Body = TypeVar("_Body")


class EngineHolder:
    """The engine of this process, once it is ready."""

    def __init__(self) -> None:
        self.engine: Engine | None = None

    def get(self) -> Engine:
        """Return the engine.

        Raises:
            EngineUnavailable: it is still loading.
        """
        if self.engine is None:
            raise EngineUnavailable("the engine is loading its model")
        return self.engine


def engine_app(holder: EngineHolder, lifespan: Any = None) -> Starlette:
    """Return the application; ``GET /health`` says 503 until ``holder`` has an engine."""

    async def health(_: Request) -> Response:
        ready = holder.engine is not None
        return PlainTextResponse("ok" if ready else "loading", 200 if ready else 503)

    async def info(_: Request) -> Response:
        return _answer(await holder.get().info())

    async def generate(request: Request) -> Response:
        body = await _read(request, GenerateRequest)
        chunks = holder.get().generate(body)
        return _ChunkResponse(gathered(chunks) if body.whole else chunks)

    async def score(request: Request) -> Response:
        return _answer(await holder.get().score(await _read(request, ScoreRequest)))

    async def load(request: Request) -> Response:
        body = await _read(request, wire.LoadRequest)
        await holder.get().load(body.source, live=body.live)
        return _answer(None)

    async def unload(request: Request) -> Response:
        body = await _read(request, wire.UnloadRequest)
        await holder.get().unload(body.policy, body.version)
        return _answer(None)

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/info", _guarded(info)),
            Route("/generate", _guarded(generate), methods=["POST"]),
            Route("/score", _guarded(score), methods=["POST"]),
            Route("/load", _guarded(load), methods=["POST"]),
            Route("/unload", _guarded(unload), methods=["POST"]),
        ],
        lifespan=lifespan,
    )


def _answer(value: object) -> Response:
    return Response(wire.encode(value), media_type=wire.CONTENT_TYPE)


def _guarded(
    handler: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Turn engine errors into responses that ``wire.decode_error`` reads."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except EngineError as error:
            return Response(
                wire.encode_error(error), status_code=error.status, media_type=wire.CONTENT_TYPE
            )

    return guarded


async def _read(request: Request, kind: type[_Body]) -> _Body:
    if request.headers.get("content-type") != wire.CONTENT_TYPE:
        raise InvalidRequest(f"the engine takes {wire.CONTENT_TYPE} only")
    try:
        return msgspec.msgpack.decode(await request.body(), type=kind)
    except msgspec.MsgspecError as error:
        raise InvalidRequest(f"the request cannot be read: {error}") from error


class _ChunkResponse(Response):
    """Streams an answer, and closes its iterator as soon as the client is gone."""

    def __init__(self, chunks: AsyncGenerator[TokenChunk, None]) -> None:
        super().__init__(media_type=wire.CONTENT_TYPE)
        del self.headers["content-length"]
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        sending = asyncio.create_task(self._send_all(send))
        gone = asyncio.create_task(_wait_until_gone(receive))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, gone):
                task.cancel()
            results = await asyncio.gather(sending, gone, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, OSError):
                raise result

    async def _send_all(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": 200, "headers": self.raw_headers},
        )
        async with contextlib.aclosing(self._chunks) as chunks:
            try:
                async for chunk in chunks:
                    await _send_body(send, wire.chunk_frame(chunk), more=True)
            except EngineError as error:
                await _send_body(send, wire.error_frame(error), more=True)
        await _send_body(send, b"", more=False)


async def _send_body(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
