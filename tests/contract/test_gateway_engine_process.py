"""Gateway and engine as two servers: what happens to one is felt by the other at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest
import uvicorn
from gateway_kit import Running, running, user

from quick_server import serving
from rejoinder.engine.app import EngineHolder, engine_app
from rejoinder.engine.client import HttpEngine

HELLO = user("Capital of France?")
CHAT = "/v1/chat/completions"


@contextlib.asynccontextmanager
async def apart(tokenizer, url: str, **settings) -> AsyncIterator[Running]:
    """A gateway whose engine is behind HTTP; ``engine`` is the one that samples there."""
    holder = EngineHolder()
    config = uvicorn.Config(engine_app(holder), log_config=None, access_log=False)
    async with serving(config) as engine_url:
        engine = HttpEngine(engine_url)
        async with running(tokenizer, url, **settings) as g:
            holder.engine = g.engine  # type: ignore[assignment]
            g.service.engine = engine
            yield g
        await engine.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_engines_slot_within_a_second(
    tiny_tokenizer, journal_url, stream
):
    async with apart(tiny_tokenizer, journal_url) as g:
        g.engine.say("Paris", gate=asyncio.Event(), gate_after=2)
        async with httpx.AsyncClient(base_url=g.base_url) as leaving:
            body = {"messages": [HELLO], "stream": stream, "n": 3}
            asking = asyncio.create_task(leaving.post(CHAT, json=body))
            await g.eventually(lambda: g.engine.running == 3)
            await asyncio.sleep(0.05)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await g.eventually(lambda: g.engine.running == 0, seconds=1.0)
        await g.eventually(lambda: g.service.admission.active == 0)
        assert {(turn["state"], turn["fate"]) for turn in g.turns()} == {("aborted", "client_gone")}


@pytest.mark.parametrize(
    ("asked", "whole"),
    [({}, True), ({"n": 2}, True), ({"stream": True}, False), ({"stop": "ri"}, False)],
)
async def test_tokens_come_many_at_a_time_only_where_none_is_looked_at_on_its_own(
    tiny_tokenizer, journal_url, asked, whole
):
    async with apart(tiny_tokenizer, journal_url) as g:
        g.engine.say("Paris it is", together=True)
        assert (await g.chat(HELLO, **asked)).status_code == 200
        assert {request.whole for request in g.engine.requests} == {whole}
        if "stop" in asked:  # the token that completes it is the last that is kept
            (turn,) = g.turns()
            assert turn["answer_tokens"] == len(tiny_tokenizer.encode("Pari"))


async def test_a_time_out_is_a_504_and_frees_the_engines_slot(tiny_tokenizer, journal_url):
    async with apart(tiny_tokenizer, journal_url, request_timeout_s=0.5, max_concurrent=1) as g:
        g.engine.say("Paris", gate=asyncio.Event(), gate_after=2)
        response = await g.chat(HELLO)
        assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
        await g.eventually(lambda: g.engine.running == 0, seconds=1.0)
        g.engine.say("Now.")
        assert (await g.chat(HELLO)).status_code == 200


async def test_the_engine_ends_long_streams_that_nobody_reads(
    tiny_tokenizer, journal_url, monkeypatch
):
    """Back-pressure passes through both servers and the kernel's buffers between them."""
    monkeypatch.setattr("rejoinder.gateway.http.UNREAD_S", 0.5)
    monkeypatch.setattr("rejoinder.gateway.streamed.MOST_READY", 16)
    async with apart(tiny_tokenizer, journal_url, max_answer_tokens=10**9) as g:
        g.engine.context_length = 10**9
        await g.service.probe_engine()
        g.engine.say("x" * 500_000)
        host, port = g.base_url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        body = httpx.Request(
            "POST", g.base_url, json={"messages": [HELLO], "stream": True, "max_tokens": 10**8}
        ).content
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.transport.pause_reading()
        writer.write(head.encode() + body)
        await g.eventually(lambda: g.engine.running == 1)
        await g.eventually(lambda: g.engine.running == 0, seconds=30)
        await g.eventually(lambda: g.service.admission.active == 0)
        (turn,) = g.turns()
        assert turn["fate"] == "client_gone"
        assert turn["answer_tokens"] < 500_000
        writer.transport.abort()
