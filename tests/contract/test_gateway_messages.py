"""Anthropic Messages over HTTP: one internal turn, whatever the dialect."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import httpx
import pytest
from gateway_kit import KEYS, Json, Running, Script, bot, user

from rejoinder.errors import ContextLengthExceeded, EngineBusy, EngineTimeout, EngineUnavailable
from rejoinder.journal.columns import decode_ids

HELLO = user("Capital of France?")
TOOL = {"name": "weather", "input_schema": {"type": "object"}}


async def ask(
    g: Running, *messages: Json, headers: dict[str, str] | None = None, path: str = "", **body: Any
) -> httpx.Response:
    made = {"model": "default", "max_tokens": 99, "messages": list(messages), **body}
    return await g.client.post(f"{path}/v1/messages", json=made, headers=headers)


async def answer(g: Running, *messages: Json, **body: Any) -> Json:
    response = await ask(g, *messages, **body)
    assert response.status_code == 200, response.text
    return response.json()


def events(text: str) -> list[Json]:
    return [json.loads(part.split("\ndata: ")[1]) for part in text.split("\n\n")[:-1]]


async def test_an_answer_is_recorded_with_the_ids_that_were_sampled(gateway):
    async with gateway() as g:
        g.engine.say("Paris.")
        said = await answer(g, HELLO)
        assert said["content"] == [{"type": "text", "text": "Paris."}]
        assert said["stop_reason"] == "end_turn"
        prompt = len(g.engine.requests[0].prompt_ids)
        assert said["usage"]["input_tokens"] + said["usage"]["cache_read_input_tokens"] == prompt
        (turn,) = g.turns()
        assert turn["completion_id"] == said["id"]
        assert said["id"].startswith("msg_")
        (row,) = g.rows("SELECT answer_ids FROM answers")
        tokenizer = g.engine.tokenizer
        assert decode_ids(row["answer_ids"]) == [*tokenizer.encode("Paris."), *tokenizer.eos_ids]


async def test_the_prompt_is_that_of_the_same_conversation_in_chat_completions(gateway):
    async with gateway() as g:
        system = {"role": "system", "content": "Be kind."}
        await g.answer(system, HELLO, bot("Paris."), user("Sure?"))
        blocks = [{"type": "text", "text": "Paris."}]
        replayed = {"role": "assistant", "content": blocks}
        await answer(g, HELLO, replayed, user("Sure?"), system="Be kind.")
        assert g.engine.requests[0].prompt_ids == g.engine.requests[1].prompt_ids


APIS = {
    "chat": ("/v1/chat/completions", "messages"),
    "responses": ("/v1/responses", "input"),
    "messages": ("/v1/messages", "messages"),
}


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(APIS, 2)))
async def test_a_conversation_goes_on_in_another_api(gateway, first, second):
    async with gateway() as g:
        for api, said in ((first, [HELLO]), (second, [HELLO, bot("Paris."), user("No!")])):
            path, field = APIS[api]
            limit = {"max_tokens": 99} if api == "messages" else {}
            response = await g.client.post(path, json={field: said, **limit})
            assert response.status_code == 200, response.text
        one, two = g.turns()
        assert two["parent_id"] == one["turn_id"]
        assert two["session_id"] == one["session_id"]
        assert one["state"] == "judging"


@pytest.mark.parametrize(
    "where",
    [
        {"headers": {"x-session-id": "s 1"}},
        {"path": "/s/s%201"},
        {"session_id": "s 1"},
        {"metadata": {"session_id": "s 1"}},
        {"headers": {"x-claude-code-session-id": "s 1"}},
    ],
)
async def test_a_session_is_named_as_in_every_dialect(gateway, where):
    async with gateway() as g:
        await answer(g, HELLO, **where)
        (session,) = g.rows("SELECT external FROM sessions")
        assert session["external"] == "s 1"


@pytest.mark.parametrize(
    "user_id",
    ["user_ab_account__session_5f3", '{"device_id":"d","account_uuid":"","session_id":"5f3"}'],
)
async def test_the_session_in_claude_codes_user_id_names_the_session_and_parts_no_user(
    gateway, user_id
):
    async with gateway() as g:
        await answer(g, HELLO, metadata={"user_id": user_id})
        await answer(g, user("Other"), metadata={"user_id": user_id.replace("5f3", "6a4")})
        rows = g.rows("SELECT external, user_name FROM sessions ORDER BY external")
        assert [row["external"] for row in rows] == ["5f3", "6a4"]
        assert rows[0]["user_name"] == rows[1]["user_name"] != ""


async def test_turn_type_and_end_are_told_as_in_every_dialect(gateway):
    async with gateway() as g:
        await answer(g, HELLO, headers={"x-turn-type": "side", "x-session-done": "1"})
        (turn,) = g.turns()
        assert (turn["turn_type"], turn["fate"]) == ("side", "side")
        assert g.rows("SELECT close_reason FROM sessions") == [{"close_reason": "done"}]


async def test_a_stop_sequence_is_named_and_not_part_of_the_text(gateway):
    async with gateway() as g:
        g.engine.say("one END two")
        said = await answer(g, HELLO, stop_sequences=["x", "END"])
        assert said["content"][0]["text"] == "one "
        assert (said["stop_reason"], said["stop_sequence"]) == ("stop_sequence", "END")
        cut = await answer(g, HELLO, max_tokens=2)
        assert cut["stop_reason"] == "max_tokens"
        g.engine.say("x" * 1000)
        full = await answer(g, HELLO, max_tokens=5000)
        assert full["stop_reason"] == "model_context_window_exceeded"


async def test_a_stream_leaves_as_it_is_sampled_and_ends_after_it_is_durable(gateway):
    async with gateway() as g:
        gate = asyncio.Event()
        g.engine.say("ab", gate=gate, gate_after=1)
        body = {"max_tokens": 9, "messages": [HELLO], "stream": True}
        async with g.client.stream("POST", "/v1/messages", json=body) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            text = ""
            async for part in response.aiter_text():
                text += part
                if '"text":"a"' in text and not gate.is_set():
                    assert "content_block_stop" not in text
                    assert g.turns()[0]["state"] == "open"
                    gate.set()
        kinds = [event["type"] for event in events(text)]
        assert kinds == [
            "message_start", "ping", "content_block_start", "content_block_delta",
            "content_block_delta", "content_block_stop", "message_delta", "message_stop",
        ]  # fmt: skip
        assert events(text)[0]["message"]["usage"]["cache_read_input_tokens"] == 4
        assert g.turns()[0]["state"] == "waiting"


async def test_unknown_fields_and_betas_are_tolerated_and_counted(gateway):
    async with gateway() as g:
        headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "new-2026-01-01"}
        await answer(g, HELLO, headers=headers, service_tier="auto", brand_new=1)
        text = (await g.client.get("/metrics")).text
        for field in ("service_tier", "other", "anthropic-beta"):
            assert f'ignored_fields_total{{field="{field}"}} 1.0' in text


@pytest.mark.parametrize(
    "header", [{"x-api-key": "sk-alice-1"}, {"authorization": "Bearer sk-alice-1"}]
)
async def test_a_key_comes_in_either_header(gateway, header):
    async with gateway(keys=KEYS) as g:
        refused = await ask(g, HELLO, headers={"x-api-key": "sk-wrong"})
        assert refused.status_code == 401
        assert refused.json()["error"]["type"] == "authentication_error"
        assert (await ask(g, HELLO)).json()["error"]["type"] == "authentication_error"
        assert (await ask(g, HELLO, headers=header)).status_code == 200
        (session,) = g.rows("SELECT key_name FROM sessions")
        assert session["key_name"] == "alice"


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (ContextLengthExceeded("too long"), 400, "invalid_request_error"),
        (EngineBusy("full"), 429, "rate_limit_error"),
        (EngineUnavailable("away"), 503, "overloaded_error"),
        (EngineTimeout("late"), 504, "timeout_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_engine_errors_keep_their_status_in_the_apis_form(
    gateway, error, status, kind, stream
):
    async with gateway() as g:
        g.engine.say("x", error=error)
        response = await ask(g, HELLO, stream=stream)
        assert (response.status_code, response.json()["error"]["type"]) == (status, kind)
        assert ("retry-after" in response.headers) == (status in (429, 503))


async def test_other_refusals_have_the_apis_form_too(gateway):
    async with gateway(max_body_bytes=2000) as g:
        for response, status, kind in (
            (await g.client.get("/v1/messages"), 405, "invalid_request_error"),
            (await ask(g, HELLO, model="claude"), 404, "not_found_error"),
            (await ask(g, user("x" * 3000)), 413, "request_too_large"),
            (await g.client.post("/v1/messages", content=b"{"), 400, "invalid_request_error"),
            (await ask(g, HELLO, temperature=2), 400, "invalid_request_error"),
        ):
            body = response.json()
            assert (response.status_code, body["type"]) == (status, "error")
            assert body["error"]["type"] == kind


async def test_a_stream_that_breaks_ends_with_an_error_event(gateway):
    async with gateway() as g:
        g.engine.say("Paris", error=EngineUnavailable("engine died"), error_after=3)
        told = events((await ask(g, HELLO, stream=True)).text)
        assert told[-1]["type"] == "error"
        assert told[-1]["error"]["type"] == "overloaded_error"
        (turn,) = g.turns()
        assert (turn["fate"], turn["answer_tokens"]) == ("engine_failed", 3)


async def test_a_client_that_goes_away_aborts_its_turn(gateway):
    async with gateway() as g:
        g.engine.say("Paris", gate=asyncio.Event(), gate_after=2)
        body = {"max_tokens": 9, "messages": [HELLO], "stream": True}
        async with g.client.stream("POST", "/v1/messages", json=body) as response:
            await anext(response.aiter_raw())
        await g.eventually(lambda: g.engine.running == 0)
        await g.eventually(lambda: g.turns()[0]["fate"] == "client_gone")


async def test_counted_tokens_are_those_of_the_prompt_and_make_no_turn(gateway):
    async with gateway() as g:
        asked = {"messages": [HELLO], "system": "Be kind.", "tools": [TOOL]}
        counted = await g.client.post("/v1/messages/count_tokens", json=asked)
        assert counted.status_code == 200
        assert g.turns() == []
        assert g.engine.requests == []
        await answer(g, HELLO, system="Be kind.", tools=[TOOL])
        assert counted.json() == {"input_tokens": len(g.engine.requests[0].prompt_ids)}
        missing = await g.client.post("/v1/messages/count_tokens", json=asked | {"model": "x"})
        assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")


async def test_thoughts_and_failed_tools_reach_the_template(tools_gateway):
    async with tools_gateway() as g:
        earlier = [
            {"type": "thinking", "thinking": "Look it up.", "signature": "s"},
            {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Bern"}},
        ]
        failed = {"type": "tool_result", "tool_use_id": "c1", "content": "away", "is_error": True}
        await answer(
            g,
            user("Weather?"),
            {"role": "assistant", "content": earlier},
            {"role": "user", "content": [failed, {"type": "text", "text": "Try again."}]},
            tools=[TOOL],
        )
        prompt = g.engine.tokenizer.decode(g.engine.requests[0].prompt_ids)
        assert "<tools>weather</tools>" in prompt
        assert "<think>Look it up.</think>" in prompt
        assert '{"name": "weather", "arguments": {"city": "Bern"}}' in prompt
        assert "tool\nError: away" in prompt
        assert "user\nTry again." in prompt


async def test_an_image_is_refused_by_name(gateway):
    async with gateway() as g:
        block = {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}
        response = await ask(g, {"role": "user", "content": [block]})
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["message"].startswith("messages[0].content[0]: content blocks of type 'image'")
        assert g.turns() == []


async def test_the_api_describes_the_paths(gateway):
    async with gateway() as g:
        described = (await g.client.get("/openapi.json")).json()
        assert set(described["paths"]) >= {"/v1/messages", "/v1/messages/count_tokens"}
        schema = described["components"]["schemas"]["MessagesBody"]
        assert set(schema["required"]) == {"messages", "max_tokens"}


async def test_answers_can_be_scored_by_their_id(gateway):
    async with gateway() as g:
        g.engine.script = lambda _request: Script("Paris.")
        said = await answer(g, HELLO)
        score = {"completion_id": said["id"], "score": 1}
        assert (await g.client.post("/v1/feedback", json=score)).json()["outcome"] == "accepted"


async def test_arguments_that_no_client_could_decode_are_no_fault_of_the_gateway(tools_gateway):
    async with tools_gateway() as g:
        for written in ('{"n": 1e999, "m": 99999999999999999999}', '{"a": "\\ud83d"}', "{oops"):
            g.engine.say(f'<tool_call>{{"name": "weather", "arguments": {written}}}</tool_call>')
            said = await answer(g, user("?"), tools=[TOOL])
            assert said["content"], written


@pytest.mark.parametrize("levels", [200, 5000])
async def test_deeply_nested_input_is_answered_or_refused(gateway, levels):
    async with gateway() as g:
        g.engine.context_length = 100_000
        await g.service.probe_engine()
        nested = b'{"a":' * levels + b"1" + b"}" * levels
        body = (
            b'{"max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use",'
            b'"id":"c","name":"f","input":' + nested + b'}]},{"role":"user","content":"Hi"}]}'
        )
        response = await g.client.post("/v1/messages", content=body)
        assert response.status_code in (200, 400), response.text
