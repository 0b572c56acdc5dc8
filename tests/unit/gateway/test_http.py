"""What is written to a connection: a response in as few pieces as it may have."""

from __future__ import annotations

import asyncio

import pytest
from uvicorn.server import ServerState

from rejoinder.config import GatewayConfig
from rejoinder.gateway.http import HttpConfig, Protocol


class Wire(asyncio.Transport):
    """Keeps what is written to it, write by write."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.written: list[bytes] = []

    def write(self, data) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...


async def written(method: bytes, *pieces: bytes, length: int | None = None) -> list[bytes]:
    """Serve one request with a body in pieces; returns what was written."""

    async def app(_scope, _receive, send) -> None:
        headers = [] if length is None else [(b"content-length", b"%d" % length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, piece in enumerate(pieces, 1):
            more = number < len(pieces)
            await send({"type": "http.response.body", "body": piece, "more_body": more})

    state, wire = ServerState(), Wire()
    config = HttpConfig(app, GatewayConfig(), lambda _error: None)
    config.load()
    protocol = Protocol(config=config, server_state=state, app_state={})
    protocol.connection_made(wire)
    protocol.data_received(method + b" / HTTP/1.1\r\nhost: x\r\n\r\n")
    await asyncio.gather(*state.tasks)
    protocol.connection_lost(None)
    return wire.written


async def test_a_whole_response_is_one_write():
    (all_of_it,) = await written(b"GET", b"hello", length=5)
    assert all_of_it.startswith(b"HTTP/1.1 200 OK\r\n")
    assert all_of_it.endswith(b"content-length: 5\r\n\r\nhello")


async def test_a_streams_first_piece_goes_with_the_head_and_each_other_by_itself():
    first, second = await written(b"GET", b"one", b"two")
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"\r\n\r\n3\r\none\r\n")
    assert second == b"3\r\ntwo\r\n0\r\n\r\n"


async def test_an_empty_piece_sends_the_head_of_a_stream_that_has_nothing_to_say_yet():
    head, *_ = await written(b"GET", b"", b"two")
    assert head.endswith(b"transfer-encoding: chunked\r\n\r\n")


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
async def test_a_head_without_a_body_is_sent_too(method):
    answer = b"".join(await written(method, b"", length=0))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"content-length: 0\r\n\r\n")
