"""What the gateway refuses, and how it says so."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from gateway_kit import KEYS, Script, user

from rejoinder.engine.base import EngineInfo
from rejoinder.errors import (
    ContextLengthExceeded,
    EngineBusy,
    EngineTimeout,
    EngineUnavailable,
    UnknownVersion,
)
from rejoinder.gateway import heartbeat

HELLO = user("Capital of France?")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"seed": 1 << 63}, "seed"),
        ({"stream": "yes"}, "stream"),
        ({"stop": ["a", 1]}, "stop[1]"),
        ({"stop": ""}, "stop"),
        ({"messages": "hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
         "messages[0].content[0]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": {"word": 1}}, "logit_bias"),
        ({"tools": {}}, "tools"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"metadata": {"session_id": 5}}, "session_id"),
        ({"turn_type": "middle"}, "turn_type"),
        ({"session_id": "x" * 300}, "session_id"),
    ],
)  # fmt: skip
async def test_bad_input_gets_a_400_that_names_the_field_and_is_counted(gateway, body, param):
    async with gateway() as g:
        made = {"model": "default", "messages": [HELLO], **body}
        response = await g.client.post("/v1/chat/completions", json=made)
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["param"] == param
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert g.turns() == []
        assert "errors_total" in (await g.client.get("/metrics")).text


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"messages":"\xff"}', b"[" * 100_000])
async def test_a_body_that_is_no_json_object_gets_a_400(gateway, content):
    async with gateway() as g:
        response = await g.client.post("/v1/chat/completions", content=content)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "invalid_json"


async def test_missing_messages_are_named(gateway):
    async with gateway() as g:
        response = await g.client.post("/v1/chat/completions", json={"model": "default"})
        assert response.json()["error"]["param"] == "messages"


async def test_unknown_models_and_paths_and_methods_get_the_openai_error_body(gateway):
    async with gateway() as g:
        response = await g.client.post(
            "/v1/chat/completions", json={"model": "gpt-9", "messages": [HELLO]}
        )
        assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
        response = await g.client.post("/v1/nothing", json={})
        assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_url")
        response = await g.client.get("/v1/chat/completions")
        assert response.status_code == 405
        assert response.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/s/x/v1/v1/messages", "/v1/messages"),
    ],
)
async def test_a_base_url_with_v1_too_often_or_never_is_pointed_out(gateway, path, meant):
    async with gateway() as g:
        response = await g.client.post(path, json={})
        assert response.status_code == 404
        assert f"did you mean {meant}?" in response.json()["error"]["message"]


async def test_a_body_that_is_too_large_gets_a_413_also_without_a_length(gateway):
    async with gateway(max_body_bytes=2000) as g:
        response = await g.chat(user("x" * 3000))
        assert (response.status_code, response.json()["error"]["code"]) == (
            413, "request_too_large",
        )  # fmt: skip

        async def unbounded():
            for _ in range(30):
                yield b" " * 100

        response = await g.client.post("/v1/chat/completions", content=unbounded())
        assert response.status_code == 413


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/feedback"])
async def test_a_compressed_body_is_told_so_and_the_connection_serves_on(gateway, path):
    async with gateway() as g:
        body = gzip.compress(json.dumps({"messages": [HELLO], "max_tokens": 9}).encode())
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        response = await g.client.post(path, content=body, headers=headers)
        assert response.status_code == 415
        assert response.headers["accept-encoding"] == "identity"
        assert "gzip" in response.json()["error"]["message"]
        assert (await g.chat(HELLO, headers={"content-encoding": "identity"})).status_code == 200


async def test_the_request_after_the_last_place_gets_a_429_and_is_told_when_to_return(gateway):
    async with gateway(keys=KEYS, max_concurrent=1, max_queued=2) as g:
        gate = asyncio.Event()
        g.engine.say("x", gate=gate)
        alice, bob, carol = (
            {"authorization": f"Bearer {key}"} for key in ("sk-alice-1", "sk-bob-22", "sk-carol")
        )
        first = asyncio.create_task(g.chat(HELLO, headers=alice))
        await g.eventually(lambda: g.engine.running == 1)
        over = await g.chat(HELLO, headers=alice)
        assert (over.status_code, over.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert over.headers["retry-after"] == "1"
        second = asyncio.create_task(g.chat(HELLO, headers=bob))
        await g.eventually(lambda: g.engine.running == 2)
        full = await g.chat(HELLO, headers=carol)
        assert (full.status_code, full.json()["error"]["code"]) == (429, "too_many_requests")
        gate.set()
        assert [(await task).status_code for task in (first, second)] == [200, 200]
        assert (await g.chat(HELLO, headers=alice)).status_code == 200, "the places are free again"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContextLengthExceeded("too long"), 400, "context_length_exceeded"),
        (EngineBusy("full"), 429, "engine_busy"),
        (EngineUnavailable("away"), 503, "engine_unavailable"),
        (UnknownVersion("no version 9"), 404, "model_not_found"),
        (EngineTimeout("late"), 504, "timeout"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_engine_errors_keep_status_and_code_also_before_a_stream(
    gateway, error, status, code, stream
):
    async with gateway() as g:
        g.engine.say("x", error=error)
        response = await g.chat(HELLO, stream=stream)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)
        assert ("retry-after" in response.headers) == (status in (429, 503))
        (turn,) = g.turns()
        assert turn["state"] == "aborted"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_without_a_token_waits_for_an_engine_that_starts_again(gateway, stream):
    async with gateway(engine_wait_s=20) as g:
        g.engine.script = lambda _: Script(
            "Paris", error=EngineUnavailable("loading") if len(g.engine.requests) < 3 else None
        )
        response = await g.chat(HELLO, stream=stream)
        assert response.status_code == 200
        (turn,) = g.turns()
        assert turn["state"] == "waiting"
        assert [request.request_id for request in g.engine.requests] == [turn["turn_id"]] * 3


async def test_an_answer_that_has_begun_is_not_sampled_anew(gateway):
    async with gateway(engine_wait_s=20) as g:
        g.engine.say("Paris", error=EngineUnavailable("died"), error_after=2)
        events = await g.events(HELLO)
        assert events[-1].json["error"]["code"] == "engine_unavailable"
        assert len(g.engine.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_regression_a_version_that_is_not_loaded_is_refused_and_no_engine_failure(
    gateway, stream
):
    async with gateway() as g:
        response = await g.chat(HELLO, model="default@9", stream=stream)
        assert response.status_code == 404
        error = response.json()["error"]
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert "no version 9" in error["message"]
        assert "loaded versions: 2, 3" in error["message"]
        assert g.turns() == []
        assert g.engine.requests == []
        assert g.service.last_error is None


async def test_a_version_that_was_loaded_a_moment_ago_is_served(gateway):
    async with gateway() as g:
        g.engine.loaded = [2, 3, 9]
        assert (await g.chat(HELLO, model="default@9")).status_code == 200


async def test_where_the_engine_does_not_describe_itself_its_own_answer_decides(gateway):
    async with gateway() as g:
        g.engine.down = EngineUnavailable("away")
        g.engine.say("x", error=UnknownVersion("no version 9"))
        response = await g.chat(HELLO, model="default@9")
        error = response.json()["error"]
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert "no version 9" not in str(g.service.last_error)


async def test_too_long_a_prompt_gets_context_length_exceeded(gateway):
    async with gateway() as g:
        response = await g.chat(user("x" * 700))
        assert response.status_code == 400
        error = response.json()["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
        assert g.engine.requests == []


async def test_an_engine_that_never_answers_gives_a_504_and_its_slot_back(gateway):
    async with gateway(request_timeout_s=0.2, max_concurrent=1) as g:
        g.engine.say("x", gate=asyncio.Event())
        response = await g.chat(HELLO)
        assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
        await g.eventually(lambda: g.engine.running == 0)
        (turn,) = g.turns()
        assert (turn["state"], turn["fate"]) == ("aborted", "timed_out")
        g.engine.say("now")
        assert (await g.chat(HELLO)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("faulty", ["feed", "finished"])
async def test_a_fault_inside_gets_a_500_and_leaves_no_turn_open(
    gateway, monkeypatch, faulty, stream
):
    async with gateway() as g:
        monkeypatch.setattr(
            f"rejoinder.gateway.capture.AnswerCapture.{faulty}", lambda *_: 1 / 0, raising=True
        )
        response = await g.chat(HELLO, stream=stream)
        if stream:  # it had begun
            assert '"code":"internal_error"' in response.text
            assert "[DONE]" not in response.text
        else:
            assert response.status_code == 500
            assert response.json()["error"]["code"] == "internal_error"
        (turn,) = g.turns()
        assert turn["state"] == "aborted"
        assert g.service.admission.active == 0


async def test_an_engine_that_ends_without_a_reason_is_an_engine_failure(gateway):
    async with gateway() as g:

        async def silent(_request):
            for nothing in ():
                yield nothing

        g.engine.generate = silent
        response = await g.chat(HELLO)
        assert (response.status_code, response.json()["error"]["code"]) == (502, "engine_error")


async def test_an_engine_with_another_tokenizer_gets_no_ids(gateway):
    async with gateway() as g:
        g.engine.tokenizer_hash = "other"
        await g.service.probe_engine()
        response = await g.chat(HELLO)
        assert response.status_code == 503
        assert "tokenizer" in response.json()["error"]["message"]
        assert g.engine.requests == []


async def test_regression_a_probe_that_is_answered_while_it_is_cancelled_ends(gateway):
    """It went on, and with it the watch of the engine: then the gateway never ended."""
    async with gateway() as g:
        known = await g.engine.info()
        for steps in range(6):
            answered = asyncio.Event()

            async def info(answered: asyncio.Event = answered) -> EngineInfo:
                await answered.wait()
                return known

            g.engine.info = info
            probing = asyncio.create_task(g.service.probe_engine())
            await asyncio.sleep(0.01)
            answered.set()
            for _ in range(steps):
                await asyncio.sleep(0)
            was_done = not probing.cancel()
            await asyncio.wait([probing])
            assert probing.cancelled() != was_done


async def test_regression_an_engine_that_was_loading_at_the_start_is_no_last_error(
    gateway, monkeypatch
):
    monkeypatch.setattr(heartbeat, "PROBE_EVERY_S", 0.005)
    async with gateway() as g:
        g.engine.down = EngineUnavailable("the engine is loading its model")
        await g.eventually(lambda: g.service.last_error)
        g.service.info = g.service.last_error = None  # as before the first answer
        await g.eventually(lambda: g.service.last_error)
        assert "loading its model" in g.service.last_error[0]
        g.engine.down = None
        await g.eventually(lambda: g.service.last_error is None)
        g.engine.down = EngineUnavailable("it went away later")
        await g.eventually(lambda: g.service.last_error)
        g.engine.down = None
        await g.eventually(lambda: g.service.engine_problem is None)
        assert "it went away later" in g.service.last_error[0]
