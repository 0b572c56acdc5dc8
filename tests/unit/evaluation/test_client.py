"""The chat client: whole answers only, and every failure counted."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fake_gateway import FakeGateway
from rejoinder.evaluation.client import Ask, ChatClient, RequestFailed
from rejoinder.types import TurnType

HELLO = [{"role": "user", "content": "hello"}]


async def test_a_streamed_answer_is_put_together(gateway: FakeGateway) -> None:
    gateway.answer = lambda _: "All is well."
    async with ChatClient(gateway.url) as client:
        reply = await client.ask(HELLO, Ask(10, 0.7))
    assert (reply.text.strip(), reply.finish_reason, reply.tokens) == ("All is well.", "stop", 7)
    assert reply.completion_id == "chatcmpl-1"
    assert (client.requests, client.failures) == (1, [])


async def test_session_kind_and_end_travel_in_headers_and_the_rest_in_the_body(
    gateway: FakeGateway,
) -> None:
    ask = Ask(10, 0.7, seed=3, model="default@0", session="s", turn_type=TurnType.SIDE, done=True)
    async with ChatClient(gateway.url) as client:
        await client.ask(HELLO, ask)
    (asked,) = gateway.asked
    assert asked.headers["X-Session-Id"] == "s"
    assert asked.headers["X-Turn-Type"] == "side"
    assert asked.headers["X-Session-Done"] == "1"
    assert asked.body["seed"] == 3
    assert asked.body["model"] == "default@0"
    assert asked.body["max_tokens"] == 10


async def test_a_refusal_is_a_counted_failure(gateway: FakeGateway) -> None:
    gateway.status = 503
    async with ChatClient(gateway.url) as client:
        with pytest.raises(RequestFailed, match="503"):
            await client.ask(HELLO, Ask(10, 0.7))
    assert len(client.failures) == 1


async def test_a_stream_without_its_end_is_a_counted_failure(gateway: FakeGateway) -> None:
    gateway.breaks_off = True
    async with ChatClient(gateway.url) as client:
        with pytest.raises(RequestFailed, match="broke off"):
            await client.ask(HELLO, Ask(10, 0.7))
    assert len(client.failures) == 1


async def _answered(*events: str) -> str:
    """Return what a client gets from an endpoint with these events."""

    async def stream(_: web.Request) -> web.Response:
        return web.Response(text="".join(f"{event}\n\n" for event in (*events, "data: [DONE]")))

    app = web.Application()
    app.router.add_post("/v1/chat/completions", stream)
    async with TestServer(app) as server, ChatClient(str(server.make_url("/"))) as client:
        try:
            return (await client.ask(HELLO, Ask(10, 0.7))).text
        finally:
            assert client.requests == 1


STOP = '{"id": "x", "choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}'


@pytest.mark.parametrize(
    "event",
    [
        "[]",
        "3",
        "null",
        "[" * 100_000,
        "1" * 5000,
        '{"choices": 3}',
        '{"choices": [{}]}',
        '{"choices": [{"delta": null}]}',
        '{"choices": [{"delta": {"content": ["Hi."]}}]}',
        '{"usage": {"prompt_tokens": 3}}',
    ],
)
async def test_regression_a_stream_of_something_else_is_a_failure_and_no_crash(event: str) -> None:
    with pytest.raises(RequestFailed):
        await _answered(f"data: {STOP}", f"data: {event}")


async def test_the_space_behind_the_colon_may_be_missing_and_choices_may_be_null() -> None:
    assert await _answered(f"data:{STOP}", 'data: {"choices": null, "usage": null}') == "Hi."


async def test_a_gateway_that_is_not_there_is_a_counted_failure() -> None:
    async with ChatClient("http://127.0.0.1:9") as client:
        with pytest.raises(RequestFailed):
            await client.ask(HELLO, Ask(10, 0.7))
    assert len(client.failures) == 1


async def test_an_address_may_have_a_path_and_no_redirect_is_followed() -> None:
    asked: list[tuple[str, str | None]] = []

    async def move(request: web.Request) -> web.Response:
        asked.append((request.path, request.headers.get("Authorization")))
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", move)
    async with (
        TestServer(app) as server,
        ChatClient(str(server.make_url("/api/")), key="secret") as client,
    ):
        with pytest.raises(RequestFailed, match="status 307"):
            await client.ask(HELLO, Ask(10, 0.7))
    assert asked == [("/api/v1/chat/completions", "Bearer secret")]
