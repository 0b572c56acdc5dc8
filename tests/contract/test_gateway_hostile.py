"""Input made to do harm, or made by careless programs: a refusal or an answer, never a fault."""

from __future__ import annotations

import asyncio
import json

import pytest
from gateway_kit import KEYS, bot, user

HELLO = user("Capital of France?")
DEEP = "[" * 3000 + "]" * 3000


def called(arguments: object) -> dict:
    """An assistant message that calls a tool."""
    function = {"name": "weather", "arguments": arguments}
    call = {"id": "c1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def deep(levels: int) -> dict:
    value: dict = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "text", ["cut \ud83d emoji", "\ude00", "\ud83d\ud83d\ude00", "\\ud83d and \ud83d"]
)
async def test_half_an_emoji_is_replaced_and_answered(gateway, text):
    async with gateway() as g:
        body = json.dumps({"messages": [user(text)], "user": text, "session_id": text})
        response = await g.client.post("/v1/chat/completions", content=body)
        assert response.status_code == 200, response.text
        (turn,) = g.turns()
        (message,) = g.journal.read_request(turn["turn_id"]).messages
        assert message.content == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@pytest.mark.parametrize("arguments", ['{"city": "\\ud83d"}', '{"city": "\\ud83d\\ude00 \\udc00"}'])
async def test_half_an_emoji_inside_tool_arguments_is_answered(gateway, arguments):
    async with gateway() as g:
        tool = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
        await g.answer(HELLO, called(arguments), tool)


async def test_half_an_emoji_in_feedback_is_taken(gateway):
    async with gateway() as g:
        said = await g.answer(HELLO)
        body = json.dumps({"completion_id": said["id"], "score": 1, "text": "good \ud83d"})
        response = await g.client.post("/v1/feedback", content=body)
        assert response.status_code == 200, response.text
        assert g.rows("SELECT text FROM feedback") == [{"text": "good \ufffd"}]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [HELLO, called(DEEP), user("and?")]},
        {"messages": [HELLO, called(deep(940)), user("and?")]},
        {"messages": [HELLO], "tools": [deep(940)]},
        {"messages": [HELLO], "metadata": {"turn_type": deep(940)}},
        {"messages": [HELLO], "chat_template_kwargs": deep(940)},
    ],
    ids=["arguments text", "arguments", "tools", "metadata", "template"],
)
async def test_deep_nesting_is_answered_or_a_400(gateway, body):
    async with gateway() as g:
        content = _json(body)
        response = await g.client.post("/v1/chat/completions", content=content)
        assert response.status_code in (200, 400), response.text
        assert all(turn["state"] != "open" for turn in g.turns())


def _json(body: object) -> bytes:
    import orjson

    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:  # too deep for it
        import sys

        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(20_000)
        try:
            return json.dumps(body).encode()
        finally:
            sys.setrecursionlimit(limit)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"logit_bias": {"9" * 30: 1}}, 400),
        ({"logit_bias": {"-1": 1}}, 400),
        ({"logit_bias": {"9" * 5000: 1}}, 400),
        ({"logit_bias": {str(id_): 1 for id_ in range(5000)}}, 400),
        ({"top_k": 10**30}, 200),
        ({"max_tokens": 10**30}, 200),
        ({"model": "default@" + "9" * 5000}, 404),
        ({"model": "default@\u0663"}, 404),
        ({"stop": "x" * 5000}, 400),
        ({"stop": ["x" * 5000]}, 400),
        ({"user": "u" * 5000}, 400),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_huge_values_are_refused_or_bounded_and_the_journal_stays_well(gateway, body, status):
    async with gateway() as g:
        response = await g.chat(HELLO, **body)
        assert response.status_code == status, response.text
        assert response.json().get("recorded", True)
        g.journal.flush()
        assert g.service.recorder.problem is None
        assert (await g.client.get("/readyz")).status_code == 200


async def test_an_error_does_not_send_a_huge_value_back(gateway):
    async with gateway() as g:
        for body in ({"model": "m" * 100_000}, {"messages": [{"role": "r" * 100_000}]}):
            response = (
                await g.chat(HELLO, **body) if "model" in body else await g.chat(*body["messages"])
            )
            assert response.status_code in (400, 404)
            assert len(response.content) < 5_000


async def test_more_messages_than_the_context_has_tokens_are_refused_unrendered(gateway):
    async with gateway() as g:
        response = await g.chat(*[user("")] * 2_000)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
        assert g.turns() == []


async def test_a_text_that_no_context_could_hold_is_refused_before_it_is_tokenised(gateway):
    async with gateway() as g:
        longest = max(map(len, g.service.tokenizer.tokenizer.get_vocab()))
        response = await g.chat(user("x" * (600 * longest)))
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
        assert g.turns() == []


async def test_a_prompt_that_is_too_long_is_kept_once_whatever_n(gateway):
    async with gateway() as g:
        assert (await g.chat(user("x" * 700), n=32)).status_code == 400
        (turn,) = g.turns()
        assert turn["state"] == "aborted"


async def test_a_slow_body_gets_a_408_and_its_place_is_free_again(gateway):
    async with gateway(request_timeout_s=0.3, max_concurrent=1) as g:
        for path in ("/v1/chat/completions", "/v1/feedback"):
            reader, writer = await _connect(g)
            head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"
            writer.write(head.encode() + b'{"messages":')
            said = await asyncio.wait_for(reader.read(), 5)  # the gateway closes the connection
            assert said.startswith(b"HTTP/1.1 408")
            assert b'"code":"request_timeout"' in said
            writer.close()
        assert g.service.admission.active == 0
        assert (await g.chat(HELLO)).status_code == 200


async def test_a_client_that_does_not_read_gives_its_place_back(gateway, monkeypatch):
    monkeypatch.setattr("rejoinder.gateway.serving.UNREAD_S", 0.1)
    async with gateway(request_timeout_s=0.3) as g:
        g.engine.context_length = 100_000
        await g.service.probe_engine()
        g.engine.say("x" * 40_000)
        body = json.dumps({"messages": [HELLO], "stream": True, "max_tokens": 90_000}).encode()
        _, writer = await _connect(g)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.transport.pause_reading()
        writer.write(head.encode() + body)
        await g.eventually(lambda: g.service.admission.active == 1)
        await g.eventually(lambda: g.service.admission.active == 0)
        await g.eventually(lambda: g.turns()[0]["state"] == "aborted")
        writer.transport.abort()


async def test_feedback_has_the_limits_of_other_requests(gateway):
    async with gateway(max_body_bytes=2000) as g:
        response = await g.client.post("/v1/feedback", content=b" " * 3000)
        assert (response.status_code, response.json()["error"]["code"]) == (
            413, "request_too_large",
        )  # fmt: skip


async def test_feedback_takes_a_place_like_other_requests(gateway):
    async with gateway(max_concurrent=1) as g:
        gate = asyncio.Event()
        g.engine.say("x", gate=gate)
        asking = asyncio.create_task(g.chat({"role": "user", "content": "Hi"}))
        await g.eventually(lambda: g.engine.running == 1)
        body = {"completion_id": "any", "score": 1}
        response = await g.client.post("/v1/feedback", json=body)
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
        gate.set()
        await asking


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        DEEP.encode(),
        b'{"completion_id":"x","score":1,"choice":' + b"9" * 30 + b"}",
    ],
)
async def test_feedback_that_is_none_gets_a_400(gateway, content):
    async with gateway() as g:
        response = await g.client.post("/v1/feedback", content=content)
        assert response.status_code == 400, response.text


async def test_feedback_comes_from_the_key_that_got_the_answer(gateway):
    async with gateway(keys=KEYS) as g:
        alice, bob = ({"authorization": f"Bearer {key}"} for key in ("sk-alice-1", "sk-bob-22"))
        said = await g.answer(HELLO, headers=alice, user="u1")
        body = {"completion_id": said["id"], "score": -1}
        other = await g.client.post("/v1/feedback", json=body, headers=bob)
        assert (other.status_code, other.json()["error"]["code"]) == (404, "completion_not_found")
        assert (await g.client.post("/v1/feedback", json=body, headers=alice)).status_code == 200


async def test_a_retry_of_many_answers_replaces_all_of_them(gateway):
    async with gateway() as g:
        named = {"x-session-id": "s"}
        await g.answer(HELLO, headers=named, n=20)
        await g.answer(HELLO, headers=named)
        *old, _ = g.turns()
        assert {turn["fate"] for turn in old} == {"superseded"}


async def test_a_retry_in_a_session_named_by_the_id_we_gave_replaces(gateway):
    async with gateway() as g:
        said = await g.answer(HELLO)
        named = {"x-session-id": said["session_id"]}
        history = [HELLO, bot("Paris."), user("Sure?")]
        await g.answer(*history, headers=named)
        await g.answer(*history, headers=named)
        first, second, third = g.turns()
        assert first["session_id"] == second["session_id"] == third["session_id"]
        assert second["superseded_by"] == third["turn_id"]


async def _connect(g) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = g.base_url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))
