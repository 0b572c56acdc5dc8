"""The HTTP client against servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from rejoinder.engine import wire
from rejoinder.engine.base import ScoreRequest, TokenChunk
from rejoinder.engine.client import HttpEngine
from rejoinder.errors import EngineError, EngineTimeout, EngineUnavailable
from rejoinder.types import FinishReason
from tiny_model import answer, request

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
FIRST = wire.chunk_frame(TokenChunk([5], [-0.5], 0))
LAST = wire.chunk_frame(TokenChunk([], [], 0, None, FinishReason.STOP))


def _http_chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[HttpEngine]:
    """Run a raw TCP server and a client of it."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await handler(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    client = HttpEngine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield client
    finally:
        await client.close()
        server.close()


@contextlib.asynccontextmanager
async def keeping(*, close_after: bool = False) -> AsyncIterator[tuple[HttpEngine, list[int]]]:
    """Run a server that answers request after request, and a client of it.

    The list has the number of requests of each connection.
    """
    served: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(0)
        at = len(served) - 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(size)
                served[at] += 1
                writer.write(HEAD + _http_chunk(FIRST + LAST) + b"0\r\n\r\n")
                if close_after:
                    break
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    client = HttpEngine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield client, served
    finally:
        await client.close()
        server.close()


async def test_answers_one_after_the_other_share_a_connection():
    async with keeping() as (client, served):
        for _ in range(3):
            await answer(client, request([1]))
        await asyncio.gather(*[answer(client, request([1])) for _ in range(2)])
    assert sorted(served) == [1, 4]


@pytest.mark.parametrize("whole", [True, False])
async def test_tokens_that_come_together_are_one_chunk_where_nobody_looks_at_each(whole):
    async with keeping() as (client, _):
        asked = replace(request([1]), whole=whole)
        chunks = [chunk async for chunk in client.generate(asked)]
    assert [chunk.ids for chunk in chunks] == ([[5]] if whole else [[5], []])
    assert chunks[-1].finish_reason is FinishReason.STOP


async def test_a_connection_that_the_engine_has_closed_is_not_used_again():
    async with keeping(close_after=True) as (client, served):
        for _ in range(3):
            await answer(client, request([1]))
            await asyncio.sleep(0.05)  # the end of a connection arrives by itself
    assert served == [1, 1, 1]


async def test_an_answer_that_is_broken_off_takes_its_connection_with_it():
    gone = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + _http_chunk(FIRST))
        while await reader.read(1 << 16):
            pass
        gone.set()

    async with serving(endless) as client:
        stream = client.generate(request([1]))
        assert (await anext(stream)).ids == [5]
        await stream.aclose()
        await asyncio.wait_for(gone.wait(), 5)


async def test_what_nobody_takes_is_not_read():
    sent = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.transport.set_write_buffer_limits(0)
        writer.write(HEAD)
        while True:
            writer.write(_http_chunk(FIRST * 1000))
            await writer.drain()
            sent += 1000 * len(FIRST)

    async with serving(flood) as client:
        stream = client.generate(request([1]))
        await anext(stream)
        before = -1
        while before != sent:  # it stops when all buffers between them are full
            assert sent < 64 << 20, "all of it is taken"
            before = sent
            await asyncio.sleep(0.2)
        for _ in range(sent // len(FIRST) + 1000):
            await anext(stream)
        assert sent > before
        await stream.aclose()


async def test_what_is_no_http_is_unavailable():
    async def other(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0\r\n")
        await writer.drain()

    async with serving(other) as client:
        with pytest.raises(EngineUnavailable, match="no HTTP"):
            await client.info()


async def test_nobody_listening_is_unavailable(unused_tcp_port: int):
    client = HttpEngine(f"http://127.0.0.1:{unused_tcp_port}")
    with pytest.raises(EngineUnavailable, match=str(unused_tcp_port)):
        await answer(client, request([1]))
    with pytest.raises(EngineUnavailable):
        await client.info()
    await client.close()


@pytest.mark.parametrize("rest", [b"", b"0\r\n\r\n"])
async def test_a_server_that_goes_away_while_answering_is_unavailable(rest: bytes):
    async def half(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + _http_chunk(FIRST) + rest)
        await writer.drain()

    async with serving(half) as client:
        stream = client.generate(request([1]))
        assert (await anext(stream)).ids == [5]
        with pytest.raises(EngineUnavailable):
            await anext(stream)


@pytest.mark.parametrize("hangs", [False, True])
async def test_what_becomes_of_a_server_behind_the_last_token_does_not_undo_the_answer(
    monkeypatch: pytest.MonkeyPatch,
    hangs: bool,
):
    monkeypatch.setattr("rejoinder.engine.client._END_S", 0.05)

    async def last(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + _http_chunk(FIRST + LAST))
        await writer.drain()
        if hangs:
            await asyncio.sleep(5)

    async with serving(last) as client:
        found = await asyncio.wait_for(answer(client, request([1])), 2)
    assert (found.ids, found.finish_reason) == ([5], FinishReason.STOP)


async def test_nothing_goes_in_the_clear_to_an_engine_behind_tls():
    said: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said.append(await reader.read(1 << 16))
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    client = HttpEngine(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    with pytest.raises(EngineUnavailable):
        await client.info()
    await client.close()
    server.close()
    assert said[0].startswith(b"\x16\x03"), "no handshake of TLS"


async def test_a_path_of_the_url_stays_before_that_of_a_request():
    paths: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        paths.append((await reader.readuntil(b"\r\n")).split()[1])
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    client = HttpEngine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/engine/")
    with pytest.raises(EngineUnavailable):
        await client.info()
    await client.close()
    server.close()
    assert paths == [b"/engine/info"]


async def test_a_server_that_hangs_is_a_timeout_some_seconds_after_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("rejoinder.engine.client._GRACE_S", 0.05)

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        await asyncio.sleep(5)

    async with serving(hang) as client:
        with pytest.raises(EngineTimeout):
            await answer(client, request([1], deadline_s=0.05))


async def test_an_error_status_with_a_foreign_body_is_an_engine_error():
    async def gateway(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\nhtml")
        await writer.drain()

    async with serving(gateway) as client:
        with pytest.raises(EngineError, match="protocol"):
            await client.info()


async def test_a_proxy_without_an_engine_behind_it_is_unavailable():
    async def gateway(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\nhtml")
        await writer.drain()

    async with serving(gateway) as client:
        with pytest.raises(EngineUnavailable):
            await client.info()


async def test_a_redirect_is_not_followed():
    followed = asyncio.Event()

    async def elsewhere(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        followed.set()

    async with serving(elsewhere) as other:

        async def redirect(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            to = f"location: {other._url}/score\r\n".encode()
            writer.write(b"HTTP/1.1 307 Temporary Redirect\r\n" + to + b"content-length: 0\r\n\r\n")
            await writer.drain()

        async with serving(redirect) as client:
            with pytest.raises(EngineError):
                await client.score(ScoreRequest("s", [1, 2], "default"))
    assert not followed.is_set()


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch):
    """Guards against conversations that leave through a proxy."""
    seen: list[bytes] = []

    async def one(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(b"served")
        last = wire.chunk_frame(TokenChunk([], [], 0, finish_reason="stop"))  # type: ignore[arg-type]
        writer.write(HEAD + _http_chunk(last) + b"0\r\n\r\n")
        await writer.drain()

    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with serving(one) as client:
        await answer(client, request([1]))
    assert seen == [b"served"]
