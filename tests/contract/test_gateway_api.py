"""The HTTP API as clients see it: answers, limits, errors."""

from __future__ import annotations

import json

import httpx
import openai
import pytest
from gateway_kit import KEYS, Script, bot, user

from rejoinder.errors import (
    EngineUnavailable,
)

HELLO = user("Capital of France?")


async def test_an_answer_has_the_form_that_openai_clients_expect(gateway):
    async with gateway() as g:
        g.engine.say("Paris.")
        body = await g.answer(HELLO)
        (choice,) = body["choices"]
        assert choice["message"]["content"] == "Paris."
        assert choice["finish_reason"] == "stop"
        prompt = len(g.engine.requests[0].prompt_ids)
        assert body["usage"]["prompt_tokens"] == prompt
        assert body["usage"]["completion_tokens"] == len("Paris.") + 1
        assert body["usage"]["total_tokens"] == prompt + len("Paris.") + 1
        assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
        assert body["model"] == "default"
        assert body["system_fingerprint"] == "default@3"


async def test_the_official_client_can_talk_to_it_streaming_and_not(gateway):
    async with gateway() as g:
        g.engine.say("Bonjour à tous 👋")
        async with openai.AsyncOpenAI(base_url=f"{g.base_url}/v1", api_key="any") as client:
            whole = await client.chat.completions.create(model="default", messages=[HELLO])
            assert whole.choices[0].message.content == "Bonjour à tous 👋"
            stream = await client.chat.completions.create(
                model="default", messages=[HELLO], stream=True
            )
            text = "".join([c.choices[0].delta.content or "" async for c in stream])
            assert text == "Bonjour à tous 👋"
            assert [m.id async for m in await client.models.list()] != []


async def test_n_answers_come_and_are_recorded_each_with_its_own_seed(gateway):
    async with gateway() as g:
        g.engine.script = lambda r: Script(f"answer {r.sampling.seed}")
        body = await g.answer(HELLO, n=3, seed=7)
        texts = [choice["message"]["content"] for choice in body["choices"]]
        assert texts == ["answer 7", "answer 8", "answer 9"]
        assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
        turns = g.turns()
        assert [turn["choice"] for turn in turns] == [0, 1, 2]
        assert {turn["completion_id"] for turn in turns} == {body["id"]}
        assert len({turn["turn_id"] for turn in turns}) == 3


async def test_seeds_of_siblings_stay_in_range(gateway):
    async with gateway() as g:
        await g.answer(HELLO, n=2, seed=(1 << 63) - 1)
        assert sorted(request.sampling.seed for request in g.engine.requests) == [
            1, (1 << 63) - 1,
        ]  # fmt: skip


async def test_deeply_nested_tools_are_no_fault_of_the_gateway(gateway):
    async with gateway() as g:
        nested: dict = {}
        for _ in range(300):
            nested = {"properties": nested}
        assert (await g.chat(HELLO, tools=[nested])).status_code == 200


async def test_logprobs_are_sent_only_to_those_who_ask(gateway):
    async with gateway() as g:
        g.engine.say("né")
        plain = await g.answer(HELLO)
        assert plain["choices"][0]["logprobs"] is None
        assert g.engine.requests[0].top_logprobs is None
        asked = await g.answer(HELLO, logprobs=True, top_logprobs=1)
        entries = asked["choices"][0]["logprobs"]["content"]
        assert len(entries) == asked["usage"]["completion_tokens"]
        text = b"".join(bytes(entry["bytes"]) for entry in entries)
        assert text.decode() == "né<|im_end|>"
        assert entries[0]["top_logprobs"] == [{"token": "n", "logprob": -0.5, "bytes": [110]}]


@pytest.mark.parametrize("value", [float("-inf"), float("nan")])
async def test_a_reply_stays_valid_json_when_a_logprob_is_not_finite(gateway, value):
    async with gateway() as g:
        g.engine.say("a", logprob=value)
        body = await g.answer(HELLO, logprobs=True)
        assert body["choices"][0]["logprobs"]["content"][0]["logprob"] == -9999.0
        (turn,) = g.turns()
        assert turn["fate"] == "missing_logprobs", "and the turn does not train"


async def test_stop_strings_end_the_text_but_not_the_recorded_ids(gateway):
    async with gateway() as g:
        g.engine.say("one END two")
        body = await g.answer(HELLO, stop=["END"])
        assert body["choices"][0]["message"]["content"] == "one "
        assert body["choices"][0]["finish_reason"] == "stop"
        (row,) = g.rows("SELECT answer_ids, logprobs FROM answers")
        assert len(row["answer_ids"]) == len(row["logprobs"]) == 4 * len("one END")
        assert g.engine.cancelled == [g.engine.requests[0].request_id]


async def test_a_cut_answer_says_length_and_no_token_is_added_to_it(gateway):
    async with gateway() as g:
        g.engine.say("a very long answer")
        body = await g.answer(HELLO, max_tokens=5)
        assert body["choices"][0]["finish_reason"] == "length"
        (row,) = g.rows("SELECT answer_ids FROM answers")
        assert len(row["answer_ids"]) == 4 * 5


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, 512),
        ({"max_tokens": 9}, 9),
        ({"max_completion_tokens": 8, "max_tokens": 9}, 8),
        ({"max_tokens": 100_000}, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_one_rule_for_the_length_of_answers(gateway, body, expected, stream):
    async with gateway() as g:
        await g.chat(HELLO, stream=stream, **body)
        (request,) = g.engine.requests
        room = g.engine.context_length - len(request.prompt_ids)
        assert request.sampling.max_tokens == (expected or room)


async def test_sampling_settings_of_the_client_reach_the_engine(gateway):
    async with gateway() as g:
        await g.answer(
            HELLO, temperature=0.3, top_p=0.9, top_k=5, min_p=0.1, seed=4, stop="x",
            frequency_penalty=0.5, presence_penalty=-0.5, logit_bias={"7": 2.5},
        )  # fmt: skip
        sampling = g.engine.requests[0].sampling
        assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.3, 0.9, 5)
        assert (sampling.min_p, sampling.seed, sampling.stop) == (0.1, 4, ("x",))
        assert (sampling.frequency_penalty, sampling.presence_penalty) == (0.5, -0.5)
        assert sampling.logit_bias == {7: 2.5}


async def test_null_fields_mean_the_same_as_none(gateway):
    async with gateway() as g:
        fields = ("max_tokens", "temperature", "top_p", "n", "stop", "seed", "tools", "user",
                  "stream_options", "logprobs", "metadata", "logit_bias")  # fmt: skip
        await g.answer(HELLO, **dict.fromkeys(fields))
        assert g.engine.requests[0].sampling.temperature == 1.0


async def test_unknown_fields_are_tolerated_and_counted(gateway):
    async with gateway() as g:
        await g.answer(HELLO, store=True, brand_new_field=1)
        text = (await g.client.get("/metrics")).text
        assert 'ignored_fields_total{field="store"} 1.0' in text
        assert 'ignored_fields_total{field="other"} 1.0' in text


async def test_a_model_may_be_left_out_named_or_pinned_to_a_version(gateway):
    async with gateway() as g:
        listed = (await g.client.get("/v1/models")).json()["data"]
        assert [m["id"] for m in listed] == ["default", "SmolLM2-135M-Instruct"]
        assert listed[0]["version"] == 3
        assert (await g.client.get("/v1/models/default@2")).json()["version"] == 2
        unknown = await g.client.get("/v1/models/default@99")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
        await g.client.post("/v1/chat/completions", json={"messages": [HELLO]})
        await g.chat(HELLO, model="SmolLM2-135M-Instruct")
        await g.chat(HELLO, model="default@2")
        targets = [(r.policy, r.version) for r in g.engine.requests]
        assert targets == [("default", None), ("default", None), ("default", 2)]


async def test_keys_are_needed_where_there_are_some(gateway):
    async with gateway(keys=KEYS) as g:
        for header in ({}, {"authorization": "Bearer sk-wrong"}, {"authorization": "sk-alice-1"}):
            for method, path in (
                ("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("GET", "/metrics"),
            ):  # fmt: skip
                response = await g.client.request(method, path, headers=header)
                assert response.status_code == 401, (path, header)
                assert response.json()["error"]["type"] == "authentication_error"
        assert (await g.client.get("/healthz")).status_code == 200
        ok = await g.chat(HELLO, headers={"authorization": "bearer sk-alice-1"})
        assert ok.status_code == 200
        (session,) = g.rows("SELECT tenant, key_name FROM sessions")
        assert session == {"tenant": "acme", "key_name": "alice"}


@pytest.mark.parametrize(
    ("keys", "named", "seen_by"),
    [
        (KEYS, (), []),
        (KEYS, ("carol",), ["sk-carol"]),
        ("acme:alice:sk-alice-1,acme:bob:sk-bob-22", (), ["sk-alice-1", "sk-bob-22"]),
        ("acme:alice:sk-alice-1,acme:bob:sk-bob-22", ("bob",), ["sk-bob-22"]),
    ],
)
async def test_totals_of_several_tenants_are_seen_by_the_keys_that_are_named(
    gateway, keys, named, seen_by
):
    async with gateway(keys=keys, metrics_keys=named) as g:
        for secret in ("sk-alice-1", "sk-bob-22", "sk-carol"):
            headers = {"authorization": f"Bearer {secret}"}
            response = await g.client.get("/metrics", headers=headers)
            if secret in keys:
                assert response.status_code == (200 if secret in seen_by else 403)


async def test_without_keys_a_callers_own_key_is_ignored(gateway):
    async with gateway() as g:
        response = await g.chat(HELLO, headers={"authorization": "Bearer sk-for-elsewhere"})
        assert response.status_code == 200


async def test_chat_template_arguments_tools_and_parts_reach_the_prompt(gateway):
    async with gateway() as g:
        await g.answer(HELLO, chat_template_kwargs={"enable_thinking": False})
        prompt = g.engine.tokenizer.decode(
            g.engine.requests[0].prompt_ids, skip_special_tokens=False
        )
        assert prompt.endswith("<think></think>")
        (turn,) = g.rows("SELECT turn_id FROM turns")
        assert g.journal.read_request(turn["turn_id"]).options == '{"enable_thinking":false}'
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"k":"v"}'}}
        await g.answer(
            {"role": "developer", "content": parts},
            HELLO,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": parts},
            tools=[{"type": "function", "function": {"name": "f"}}],
        )
        prompt = g.engine.tokenizer.decode(
            g.engine.requests[1].prompt_ids, skip_special_tokens=False
        )
        assert "<|im_start|>system\nab<|im_end|>" in prompt
        assert "<call>f k=v</call>" in prompt
        assert "<|im_start|>tool\nab<|im_end|>" in prompt


async def test_tools_are_kept_in_the_order_in_which_they_were_rendered(gateway):
    """A teacher's prompt is rendered from them again, and must begin with the same ids."""
    tools = [{"type": "function", "function": {"name": "f", "description": "d"}}]
    async with gateway() as g:
        await g.answer(HELLO, tools=tools)
        (row,) = g.rows("SELECT turn_id FROM turns")
        request = g.journal.read_request(row["turn_id"])
        assert request.tools == json.dumps(tools, separators=(",", ":"))


async def test_broken_tool_call_text_comes_back_as_content_and_is_recorded_raw(gateway):
    async with gateway() as g:
        g.engine.say("<tool_call>{broken")
        body = await g.answer(HELLO, tools=[{"type": "function", "function": {"name": "f"}}])
        assert body["choices"][0]["message"]["content"] == "<tool_call>{broken"
        assert body["choices"][0]["finish_reason"] == "stop"
        (row,) = g.rows("SELECT answer_ids FROM answers")
        assert len(row["answer_ids"]) == 4 * (len("<tool_call>{broken") + 1)


async def test_readiness_says_what_is_missing(gateway):
    async with gateway() as g:
        assert (await g.client.get("/readyz")).json() == {"status": "ready", "missing": {}}
        g.engine.down = EngineUnavailable("nobody listens")
        await g.service.probe_engine()
        response = await g.client.get("/readyz")
        assert response.status_code == 503
        assert "nobody listens" in response.json()["missing"]["engine"]
        assert (await g.client.get("/healthz")).json() == {"status": "ok"}


async def test_feedback_is_taken_by_score_or_thumb_for_a_known_completion(gateway):
    async with gateway() as g:
        body = await g.answer(HELLO, n=2)

        async def feedback(**fields: object) -> httpx.Response:
            return await g.client.post("/v1/feedback", json=fields)

        taken = await feedback(completion_id=body["id"], choice=1, thumb="down", text="too short")
        assert taken.json() == {"completion_id": body["id"], "outcome": "accepted"}
        (row,) = g.rows("SELECT score, text, choice FROM feedback JOIN turns USING (turn_id)")
        assert row == {"score": -1, "text": "too short", "choice": 1}
        assert (await feedback(completion_id=body["id"], score=1)).status_code == 200
        unknown = await feedback(completion_id="chatcmpl-x", score=1)
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (
            404, "completion_not_found",
        )  # fmt: skip
        for wrong in (
            {"completion_id": body["id"]},
            {"completion_id": body["id"], "score": 1, "thumb": "up"},
            {"completion_id": body["id"], "score": 2},
            {"score": 1},
        ):
            assert (await feedback(**wrong)).status_code == 400


async def test_tenants_cannot_score_each_others_answers(gateway):
    async with gateway(keys=KEYS) as g:
        alice = {"authorization": "Bearer sk-alice-1"}
        body = await g.answer(HELLO, headers=alice)
        response = await g.client.post(
            "/v1/feedback",
            json={"completion_id": body["id"], "score": 1},
            headers={"authorization": "Bearer sk-carol"},
        )
        assert response.status_code == 404


async def test_the_api_describes_itself(gateway):
    async with gateway() as g:
        described = (await g.client.get("/openapi.json")).json()
        assert set(described["paths"]) >= {
            "/v1/chat/completions", "/v1/models", "/v1/feedback", "/healthz", "/readyz", "/metrics",
        }  # fmt: skip
        assert "messages" in described["components"]["schemas"]["ChatBody"]["properties"]


async def test_an_assistant_message_at_the_end_is_accepted(gateway):
    async with gateway() as g:
        assert (await g.chat(HELLO, bot("Well,"))).status_code == 200
