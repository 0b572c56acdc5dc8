"""What comes over real sockets and is no proper request, or takes no proper answer."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
import structlog
from gateway_kit import Running, Script, user

from rejoinder.gateway import http, streamed

CHAT = "/v1/chat/completions"
HELLO = user("Capital of France?")
LONG = 16_000_000
"""More bytes than a kernel holds for a connection."""


class Wire:
    """A client's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, g: Running, **options: int) -> Wire:
        host, port = g.base_url.removeprefix("http://").split(":")
        plain = socket.create_connection((host, int(port)))
        for name, value in options.items():
            plain.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        return cls(*await asyncio.open_connection(sock=plain))

    async def all(self, seconds: float = 5) -> bytes:
        """Read until the gateway closes the connection."""
        return await asyncio.wait_for(self.reader.read(), seconds)

    async def until(self, part: bytes, seconds: float = 5) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(part), seconds)


def post(body: bytes, *lines: str, length: int | None = None, path: str = CHAT) -> bytes:
    length = len(body) if length is None else length
    head = [f"POST {path} HTTP/1.1", "host: x", *lines]
    if not any(line.startswith("transfer-encoding") for line in lines):
        head.append(f"content-length: {length}")
    return "\r\n".join([*head, "", ""]).encode() + body


def chat(*lines: str, **fields: object) -> bytes:
    return post(json.dumps({"messages": [HELLO], **fields}).encode(), *lines)


def error_of(said: bytes) -> tuple[int, str]:
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]["code"]


# --- other protocols ------------------------------------------------------------------------------

OFFER = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAEAAEAAAAI")
"""As Java's own HTTP client begins, and clients of models that are built on it."""


def in_chunks(body: bytes, *lines: str) -> bytes:
    half = len(body) // 2
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (body[:half], body[half:]))
    return post(pieces + b"0\r\n\r\n", "transfer-encoding: chunked", *lines)


@pytest.mark.parametrize("write", [post, in_chunks])
@pytest.mark.parametrize("size", [1 << 20, 64, 1], ids=["at once", "in pieces", "byte by byte"])
async def test_a_request_that_offers_another_protocol_is_served_with_its_body(gateway, write, size):
    """Its body was lost: the parser ends such a request with its head."""
    async with gateway() as g:
        wire = await Wire.to(g)
        sent = write(json.dumps({"messages": [HELLO]}).encode(), *OFFER)
        for _ in range(2):  # the connection serves the next one, too
            for start in range(0, len(sent), size):
                wire.writer.write(sent[start : start + size])
                await wire.writer.drain()
                await asyncio.sleep(0)
            head = await wire.until(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert b"Paris." in await wire.until(b"session_id")
            await wire.until(b"}")
        wire.writer.write(chat("connection: close"))
        assert b"Paris." in await wire.all()


@pytest.mark.parametrize("length", [(), ("content-length: 0",), ("content-length: 00",)])
async def test_an_offer_without_a_body_is_answered_and_what_follows_too(gateway, length):
    async with gateway() as g:
        wire = await Wire.to(g)
        asked = "\r\n".join(["GET /healthz HTTP/1.1", "host: x", *OFFER, *length, "", ""])
        for _ in range(3):
            wire.writer.write(asked.encode())
            await wire.until(b'{"status":"ok"}')
        wire.writer.write(asked.encode() * 2)  # the second one comes before the answer to the first
        assert (await wire.all()).count(b'{"status":"ok"}') == 1


async def test_a_body_behind_an_offer_keeps_the_limits(gateway):
    async with gateway(max_body_bytes=2048, max_head_bytes=8192) as g:
        for sent, status in (
            (post(b"x" * 4096, *OFFER), 413),
            (post(b"1;" + b"x" * 600_000, "transfer-encoding: chunked", *OFFER), 431),
            (post(b"xyz\r\n", "transfer-encoding: chunked", *OFFER), 400),
            (post(b"{}", "content-length: 2", "transfer-encoding: chunked", *OFFER), 400),
        ):
            wire = await Wire.to(g)
            wire.writer.write(sent)
            head = await wire.until(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status)
        await g.eventually(lambda: g.service.admission.active == 0)


# --- heads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/models HTTP/1.1\r\nx-long: " + b"x" * 400_000,
        b"GET /v1/models?" + b"x" * 400_000,
        b"GET /v1/models HTTP/1.1\r\n" + b"a: b\r\n" * 70_000,
        b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-long: " + b"x" * 9_000 + b"\r\n\r\n",
    ],
    ids=["one header", "path", "many headers", "complete"],
)
async def test_a_head_that_is_too_long_is_refused_before_its_end(gateway, head):
    async with gateway(max_head_bytes=8192) as g:
        wire = await Wire.to(g)
        wire.writer.write(head)
        assert error_of(await wire.all()) == (431, "headers_too_large")
        assert 'code="headers_too_large"' in (await g.client.get("/metrics")).text


async def test_what_stands_between_pieces_of_a_body_is_bounded_too(gateway):
    async with gateway(max_head_bytes=8192) as g:
        for endless in (b"1;" + b"x" * 600_000, b"0\r\n" + b"trailer: x\r\n" * 60_000):
            wire = await Wire.to(g)
            wire.writer.write(post(b"", "transfer-encoding: chunked") + endless)
            assert error_of(await wire.all()) == (431, "headers_too_large")


async def test_regression_who_was_refused_was_still_asked_to_go_on(gateway):
    async with gateway() as g:
        with structlog.testing.capture_logs() as logs:
            wire = await Wire.to(g)
            wire.writer.write(
                b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\r\n\x01"
            )
            assert error_of(await wire.all()) == (400, "invalid_http")
            await g.eventually(lambda: g.service.admission.active == 0)
        assert not [line for line in logs if line["log_level"] == "error"]


async def test_what_is_no_http_gets_an_error_in_the_form_of_all_others(gateway):
    async with gateway() as g:
        for nonsense in (
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"HELLO\r\n\r\n",
            post(b"", "content-length: 5", "transfer-encoding: chunked"),
            post(b"xyz\r\n", "transfer-encoding: chunked"),
        ):
            wire = await Wire.to(g)
            wire.writer.write(nonsense)
            assert error_of(await wire.all())[0] == 400
        assert g.service.admission.active == 0


async def test_a_head_that_does_not_end_gives_its_connection_back(gateway, monkeypatch):
    monkeypatch.setattr(http, "HEAD_S", 0.2)
    async with gateway() as g:
        wire = await Wire.to(g)
        wire.writer.write(b"GET /v1/models HTTP/1.1\r\n")
        assert await wire.all() == b""
        wire = await Wire.to(g)
        wire.writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200 OK" in await wire.until(b"}")
        wire.writer.write(b"GET /healthz HTTP/1.1\r\n")
        assert await wire.all() == b"", "also after another request"


@pytest.mark.parametrize(
    "said", [b"", b"\r\n", b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n\r\n\r\n"]
)
async def test_a_connection_that_says_nothing_is_closed(gateway, monkeypatch, said):
    monkeypatch.setattr(http, "KEEP_ALIVE_S", 0.2)
    async with gateway() as g:
        wire = await Wire.to(g)
        wire.writer.write(said)
        await wire.all()


async def test_more_connections_than_there_may_be_get_a_503(gateway):
    async with gateway(max_connections=3) as g:
        open_ones = [await Wire.to(g) for _ in range(3)]
        for wire in open_ones:
            wire.writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            await wire.until(b"}")
        assert error_of(await (await Wire.to(g)).all()) == (503, "too_many_connections")
        open_ones[0].writer.close()
        await asyncio.sleep(0.2)
        wire = await Wire.to(g)
        wire.writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200 OK" in await wire.until(b"}")


# --- bodies ---------------------------------------------------------------------------------------


async def test_a_length_that_lies_harms_nobody(gateway):
    async with gateway(max_body_bytes=2000, request_timeout_s=0.5) as g:
        body = json.dumps({"messages": [HELLO]}).encode()
        for length, status in ((5, 400), (len(body) + 5, 408), (10**30, 400), (3000, 413)):
            wire = await Wire.to(g)
            wire.writer.write(post(body, "connection: close", length=length))
            assert b"HTTP/1.1 %d" % status in await wire.all()
        await g.eventually(lambda: g.service.admission.active == 0)
        assert g.turns() == []


async def test_what_follows_a_refused_body_is_neither_kept_nor_waited_for(gateway, monkeypatch):
    monkeypatch.setattr(http, "HEAD_S", 0.3)
    async with gateway(max_body_bytes=2000) as g:
        wire = await Wire.to(g)
        wire.writer.write(post(b"x" * 5000, length=10**9))
        assert b"HTTP/1.1 413" in await wire.until(b"}}")
        async with asyncio.timeout(10):
            while not (wire.reader.at_eof() or wire.writer.is_closing()):
                wire.writer.write(b"x" * 10_000)
                await asyncio.sleep(0.01)


async def test_after_a_refused_body_has_come_the_connection_serves_on(gateway):
    async with gateway(max_body_bytes=2000) as g:
        wire = await Wire.to(g)
        wire.writer.write(post(b"x" * 50_000))
        assert b"HTTP/1.1 413" in await wire.until(b"}}")
        wire.writer.write(chat())
        assert b"HTTP/1.1 200" in await wire.until(b"\r\n\r\n")


# --- offers of other protocols --------------------------------------------------------------------

H2C = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQ")
"""What the JDK's client and ``curl --http2`` put beside every request over plain HTTP."""


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_an_offer_of_http2_is_declined_and_its_request_served(gateway, in_pieces):
    """Guards against a body that is lost, and then read as the next request."""
    async with gateway() as g:
        body = json.dumps({"messages": [HELLO]}).encode()
        chunked = post(
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body), "transfer-encoding: chunked", *H2C
        )
        wire = await Wire.to(g)
        for sent in (chat(*H2C), chunked, chat()):
            size = 50 if in_pieces else len(sent)
            for at in range(0, len(sent), size):
                wire.writer.write(sent[at : at + size])
                await asyncio.sleep(0.002)
            assert b"HTTP/1.1 200" in await wire.until(b"\r\n\r\n")
            await wire.until(b"session_id")
            await wire.until(b"}")
        assert len(g.turns()) == 3


async def test_what_a_connection_is_told_beside_an_offer_still_holds(gateway):
    async with gateway(max_head_bytes=8192) as g:
        wire = await Wire.to(g)
        wire.writer.write(chat("connection: upgrade, close", "upgrade: websocket"))
        assert b"HTTP/1.1 200" in await wire.all(), "and then the connection ends"
        wire = await Wire.to(g)
        wire.writer.write(chat(*H2C, "x-long: " + "x" * 9_000))
        assert error_of(await wire.all()) == (431, "headers_too_large")
        wire = await Wire.to(g)
        wire.writer.write(b"CONNECT example.org:80 HTTP/1.1\r\nhost: x\r\n\r\n" + chat(*H2C))
        assert b"HTTP/1.1 40" in await wire.until(b"\r\n\r\n")
        assert len(g.turns()) == 1


@pytest.mark.parametrize("reads", [True, False])
async def test_a_client_that_reads_slowly_gets_all_of_a_long_response_if_it_reads(
    gateway, monkeypatch, reads
):
    """Guards against a slow link that is cut off, and against a client that holds memory."""
    monkeypatch.setattr(http, "UNREAD_S", 1.0)
    lost, lose = asyncio.Event(), http.Protocol.connection_lost
    monkeypatch.setattr(
        http.Protocol, "connection_lost", lambda *given: (lose(*given), lost.set())[0]
    )
    async with gateway(max_body_bytes=2 * LONG) as g:
        wire = await Wire.to(g, SO_RCVBUF=65_536)
        body = {"input": "Hi", "metadata": {"a": "x" * LONG}}
        wire.writer.write(
            post(json.dumps(body).encode(), "connection: close", path="/v1/responses")
        )
        got = 0
        async with asyncio.timeout(20):
            while piece := await wire.reader.read(100_000 if reads else 1_000):
                got += len(piece)
                if lost.is_set() and not reads:
                    break
                await asyncio.sleep(0.015)
        assert (got > LONG) == reads
        wire.writer.transport.abort()


# --- clients that leave, hurry or do not read -----------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_sends_on_and_leaves_is_noticed_all_the_same(gateway, stream):
    """Guards against a second request on the connection that hides the end of the first."""
    async with gateway() as g:
        g.engine.say("Paris", gate=asyncio.Event(), gate_after=2)
        wire = await Wire.to(g)
        wire.writer.write(chat(stream=stream) + chat() + b"POST /v1/chat")
        await g.eventually(lambda: g.engine.running == 1)
        wire.writer.write(chat())
        await asyncio.sleep(0.05)
        wire.writer.close()
        await g.eventually(lambda: g.engine.running == 0, seconds=1.0)
        await g.eventually(lambda: g.service.admission.active == 0)
        assert [turn["fate"] for turn in g.turns()] == ["client_gone"]


async def test_a_request_that_is_sent_before_the_answer_ends_the_connection_with_the_answer(
    gateway,
):
    async with gateway() as g:
        wire = await Wire.to(g)
        wire.writer.write(chat() + chat())
        said = await wire.all()
        assert said.count(b"HTTP/1.1 200") == 1
        assert b"connection: close" in said
        assert len(g.turns()) == 1


async def behind_an_unread_answer(g, buffer: int) -> Wire:
    """Return a connection with a long answer that nobody reads, and one more request behind it."""
    wire = await Wire.to(g, SO_RCVBUF=buffer)
    wire.writer.transport.pause_reading()
    body = {"input": "Hi", "metadata": {"a": "x" * LONG}}
    wire.writer.write(post(json.dumps(body).encode(), path="/v1/responses"))
    await g.eventually(lambda: len(g.engine.requests) == 1)
    await g.eventually(lambda: g.service.admission.active == 0, seconds=20)
    wire.writer.write(chat())
    return wire


async def test_a_request_behind_an_answer_that_nobody_reads_is_not_served(gateway, monkeypatch):
    """Guards against an answer that holds its place while it waits behind what nobody reads."""
    monkeypatch.setattr(http, "UNREAD_S", 0.5)
    lost, lose = asyncio.Event(), http.Protocol.connection_lost
    monkeypatch.setattr(
        http.Protocol, "connection_lost", lambda *given: (lose(*given), lost.set())[0]
    )
    async with gateway(max_body_bytes=2 * LONG) as g:
        wire = await behind_an_unread_answer(g, 4096)
        async with asyncio.timeout(10):
            await lost.wait()
        assert g.service.admission.active == 0
        assert len(g.turns()) == 1
        wire.writer.transport.abort()


async def test_what_waits_for_a_client_that_has_hurried_on_still_reaches_it(gateway):
    async with gateway(max_body_bytes=2 * LONG) as g:
        wire = await behind_an_unread_answer(g, 65_536)
        await asyncio.sleep(0.05)
        wire.writer.transport.resume_reading()
        said = await wire.all(30)
        assert len(said) > LONG
        assert said.count(b"HTTP/1.1 200") == 1
        assert len(g.turns()) == 1


async def test_a_stream_that_nobody_reads_is_held_back_at_a_bound(gateway, monkeypatch):
    """A real server and real sockets; the kernel's buffers are what a client can fill."""
    monkeypatch.setattr(streamed, "MOST_READY", 16)
    monkeypatch.setattr(http, "UNREAD_S", 1.0)
    async with gateway(max_answer_tokens=10**9) as g:
        g.engine.context_length = 10**9
        await g.service.probe_engine()
        sampled = 0
        chars = "x" * 200_000

        def count(_request):
            nonlocal sampled
            sampled += 1
            return Script(chars)

        g.engine.script = count
        wire = await Wire.to(g, SO_RCVBUF=4096)
        wire.writer.transport.pause_reading()
        wire.writer.write(chat(stream=True, max_tokens=10**8, n=2))
        await g.eventually(lambda: g.service.generations)
        (running,) = g.service.generations
        waiting = 0
        async with asyncio.timeout(20):
            while g.service.admission.active:
                waiting = max(waiting, len(running._ready))
                await asyncio.sleep(0.01)
        assert waiting <= 18
        turns = g.turns()
        assert [turn["fate"] for turn in turns] == ["client_gone"] * 2
        assert all(turn["answer_tokens"] < len(chars) for turn in turns), "sampling had to wait"
        assert g.engine.running == 0
        wire.writer.transport.abort()


async def test_a_slow_client_that_reads_gets_everything(gateway, monkeypatch):
    monkeypatch.setattr(streamed, "MOST_READY", 16)
    async with gateway(max_answer_tokens=10**9) as g:
        g.engine.context_length = 10**9
        await g.service.probe_engine()
        g.engine.say("x" * 30_000)
        wire = await Wire.to(g, SO_RCVBUF=4096)
        wire.writer.write(chat("connection: close", stream=True, max_tokens=10**8))
        said = b""
        while piece := await wire.reader.read(200_000):
            said += piece
            await asyncio.sleep(0.001)
        assert said.count(b'"content":"x"') == 30_000
        assert b"[DONE]" in said


async def test_a_response_has_so_many_tokens_at_most_whatever_is_asked_for(gateway):
    async with gateway(max_answer_tokens=10) as g:
        g.engine.say("x" * 100)
        said = await g.answer(HELLO, max_tokens=50, n=3)
        assert [len(one["message"]["content"]) for one in said["choices"]] == [3, 3, 3]
        assert {one["finish_reason"] for one in said["choices"]} == {"length"}
        said = await g.answer(HELLO, max_tokens=50)
        assert said["usage"]["completion_tokens"] == 10
        said = await g.answer(HELLO, max_tokens=50, n=20)
        assert said["usage"]["completion_tokens"] == 20, "one each, and never none"
