"""``/v1/responses`` as the official client sees it: answers, streams, calls, kept responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai
import orjson
import pytest
from gateway_kit import KEYS, Json, Running, Script, running, user
from openai import AsyncOpenAI
from openai.types.responses import Response

from rejoinder.errors import EngineUnavailable
from rejoinder.journal.columns import decode_ids
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import FinishReason

TOOLS: list[Any] = [
    {"type": "function", "name": "weather", "parameters": {}, "strict": None, "description": "?"}
]
ARGUMENTS = '{"city": "Zürich", "days": 2}'
CALL = (
    "<think>\nThey ask for the weather.\n</think>\n\nLet me see.\n"
    f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
)
ANSWERS = (CALL, "<think>\n\n</think>\n\nRain. ☂", "You are welcome.")


@asynccontextmanager
async def client_of(g: Running, key: str = "any", **more: Any) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{g.base_url}/v1", api_key=key, **more) as client:
        yield client


def by_turn(tokenizer: ModelTokenizer) -> Callable[[Any], Script]:
    """A script that goes by how many answers the prompt has."""

    def script(request: Any) -> Script:
        prompt = tokenizer.decode(request.prompt_ids, skip_special_tokens=False)
        return Script(ANSWERS[prompt.count("<|im_start|>assistant\n") - 1])

    return script


async def ask(client: AsyncOpenAI, *, stream: bool, **asked: Any) -> Response:
    """Ask for a response; a streamed one is put together by the client's own helper."""
    asked = {"model": "default", "tools": TOOLS, **asked}
    if not stream:
        return await client.responses.create(**asked)
    async with client.responses.stream(**asked) as events:
        return await events.get_final_response()


def the_call(response: Response) -> Any:
    (call,) = (item for item in response.output if item.type == "function_call")
    return call


def check_records(g: Running, tokenizer: ModelTokenizer) -> None:
    """The sampled ids, one session, each answer the parent of the next."""
    rows = g.rows(
        "SELECT t.turn_id, t.session_id, t.parent_id, a.answer_ids "
        "FROM turns t JOIN answers a USING (turn_id) ORDER BY t.created_at"
    )
    assert len({row["session_id"] for row in rows}) == 1
    assert [row["parent_id"] for row in rows] == [None, *(row["turn_id"] for row in rows[:-1])]
    for row, text in zip(rows, ANSWERS, strict=True):
        assert decode_ids(row["answer_ids"]) == [*tokenizer.encode(text), *tokenizer.eos_ids]
    states = g.rows("SELECT kind FROM next_states ORDER BY created_at")
    assert [state["kind"] for state in states] == ["tool", "user"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kept", [False, True], ids=["resent", "by id"])
async def test_a_conversation_with_a_tool_call_is_served_linked_and_recorded(
    tools_gateway, thinker, stream, kept
):
    async with tools_gateway() as g, client_of(g) as client:
        g.engine.script = by_turn(thinker)
        said: list[Any] = [user("What is the weather in Zürich?")]
        first = await ask(client, stream=stream, input=said)
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
        assert first.output_text == "Let me see."
        assert first.output[0].content[0].text == "They ask for the weather."
        call = the_call(first)
        assert (call.name, json.loads(call.arguments)) == ("weather", json.loads(ARGUMENTS))

        def more(response: Response, *items: Json) -> dict[str, Any]:
            if kept:
                return {"previous_response_id": response.id, "input": list(items)}
            said.extend([*response.output, *items])
            return {"input": said}

        result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
        second = await ask(client, stream=stream, **more(first, result))
        assert second.output_text == "Rain. ☂"
        third = await ask(client, stream=stream, **more(second, user("Thanks!")))
        assert (third.output_text, third.status) == ("You are welcome.", "completed")
        check_records(g, thinker)
        prompts = [request.prompt_ids for request in g.engine.requests]
        last = thinker.decode(prompts[-1], skip_special_tokens=False)
        assert "<think>They ask for the weather.</think>Let me see.<tool_call>" in last
        assert "<|im_start|>tool\nrain<|im_end|>" in last


async def test_resent_and_named_conversations_are_the_same_prompts(tools_gateway, thinker):
    async with tools_gateway() as g, client_of(g) as client:
        g.engine.script = by_turn(thinker)
        opening = [user("Weather?")]
        first = await ask(client, stream=False, input=opening)
        result = {
            "type": "function_call_output",
            "call_id": the_call(first).call_id,
            "output": "rain",
        }
        await ask(client, stream=False, input=[*opening, *first.output, result])
        await ask(client, stream=False, input=[result], previous_response_id=first.id)
        _, resent, named = g.engine.requests
        assert resent.prompt_ids == named.prompt_ids


async def test_a_chain_goes_on_through_a_restarted_gateway(tools_gateway, thinker, journal_url):
    async with tools_gateway() as g, client_of(g) as client:
        g.engine.say("I am Ada.")
        first = await ask(client, stream=True, input="Who are you?", instructions="Be short.")
    async with running(thinker, journal_url) as g, client_of(g) as client:
        g.engine.say("Ada, as I said.")
        second = await ask(
            client,
            stream=False,
            input="Your name?",
            instructions="Be polite.",
            previous_response_id=first.id,
        )
        assert second.previous_response_id == first.id
        prompt = thinker.decode(g.engine.requests[0].prompt_ids, skip_special_tokens=False)
        assert prompt == (
            "<tools>weather</tools><|im_start|>system\nBe polite.<|im_end|>\n"
            "<|im_start|>user\nWho are you?<|im_end|>\n"
            "<|im_start|>assistant\nI am Ada.<|im_end|>\n"
            "<|im_start|>user\nYour name?<|im_end|>\n<|im_start|>assistant\n"
        )
        assert (await client.responses.retrieve(first.id)).output_text == "I am Ada."
        before, after = g.turns()
        assert after["parent_id"] == before["turn_id"]


async def test_what_is_kept_is_what_was_sent(gateway):
    async with gateway() as g, client_of(g) as client:
        whole = await client.responses.with_raw_response.create(model="default", input="Hi")
        sent = orjson.loads(whole.content)
        kept = await g.client.get(f"/v1/responses/{sent['id']}")
        assert orjson.loads(kept.content) == sent
        events = await client.responses.create(model="default", input="Hi", stream=True)
        *_, last = [event async for event in events]
        again = await client.responses.retrieve(last.response.id)
        assert again.to_dict() == last.response.to_dict()


async def test_instructions_tools_and_forms_of_many_responses_are_stored_once(gateway):
    long = "Speak of rivers é. " * 25
    described = [{**TOOLS[0], "description": long * 100}]  # this template shows no tools
    form = {"type": "json_schema", "name": "x", "schema": {"description": long * 100}}
    asked = {"instructions": long, "tools": described, "text": {"format": form}, "input": "Hi"}
    async with gateway() as g:
        answers = [await g.client.post("/v1/responses", json=asked) for _ in range(10)]
        sent = [answer.content for answer in answers if answer.status_code == 200]
        assert len(sent) == 10
        for body in sent:
            kept = await g.client.get(f"/v1/responses/{orjson.loads(body)['id']}")
            assert kept.content == body
        (stored,) = g.rows("SELECT sum(length(body)) AS bytes FROM responses")
        assert stored["bytes"] < sum(map(len, sent)) / 20


async def test_a_deleted_response_can_be_neither_read_nor_gone_on_from(gateway):
    async with gateway() as g, client_of(g) as client:
        made = await client.responses.create(model="default", input="Hi")
        await client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(made.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.delete(made.id)
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model="default", input="?", previous_response_id=made.id)
        assert [turn["state"] for turn in g.turns()] == ["waiting"], "the record stays"


async def test_a_response_that_is_not_to_be_stored_is_not(gateway):
    async with gateway() as g, client_of(g) as client:
        made = await client.responses.create(model="default", input="Hi", store=False)
        assert made.to_dict()["store"] is False
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(made.id)


async def test_an_unknown_earlier_response_is_refused_as_openai_does(gateway):
    async with gateway() as g, client_of(g) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(
                model="default", input="Hi", previous_response_id="resp_none"
            )
        assert caught.value.code == "previous_response_not_found"
        assert caught.value.param == "previous_response_id"
        assert g.turns() == []


async def test_responses_belong_to_the_key_that_created_them(gateway):
    async with gateway(keys=KEYS) as g, client_of(g, "sk-alice-1") as alice:
        made = await alice.responses.create(model="default", input="Hi")
        for other in ("sk-bob-22", "sk-carol"):
            async with client_of(g, other) as client:
                with pytest.raises(openai.NotFoundError):
                    await client.responses.retrieve(made.id)
                with pytest.raises(openai.NotFoundError):
                    await client.responses.delete(made.id)
                with pytest.raises(openai.BadRequestError):
                    await client.responses.create(
                        model="default", input="?", previous_response_id=made.id
                    )
        async with client_of(g, "sk-nobody") as stranger:
            with pytest.raises(openai.AuthenticationError):
                await stranger.responses.retrieve(made.id)
        assert (await alice.responses.retrieve(made.id)).id == made.id


async def test_to_read_and_to_forget_count_among_a_keys_requests(gateway):
    async with gateway(requests_per_minute=3) as g:
        made = await g.client.post("/v1/responses", json={"input": "Hi"})
        path = f"/v1/responses/{made.json()['id']}"
        for method, status in (("GET", 200), ("DELETE", 200), ("GET", 429), ("DELETE", 429)):
            assert (await g.client.request(method, path)).status_code == status


async def test_of_two_equal_answers_the_named_one_is_the_parent(gateway):
    async with gateway() as g, client_of(g) as client:
        g.engine.say("Hello!")
        made = [await client.responses.create(model="default", input="Hi") for _ in range(2)]
        await client.responses.create(
            model="default", input="Who are you?", previous_response_id=made[0].id
        )
        first, other, reply = g.turns()
        assert reply["parent_id"] == first["turn_id"]
        assert reply["session_id"] == first["session_id"]
        assert other["session_id"] != first["session_id"]


@pytest.mark.parametrize("named", [0, 1], ids=["side", "main"])
async def test_of_a_side_and_a_main_answer_the_named_one_is_the_parent(gateway, named):
    async with gateway() as g:
        made = [
            await g.client.post("/v1/responses", json={"input": "Hi", "turn_type": kind})
            for kind in ("side", "main")
        ]
        earlier = made[named].json()["id"]
        await g.client.post("/v1/responses", json={"input": "?", "previous_response_id": earlier})
        *turns, reply = g.turns()
        assert reply["parent_id"] == turns[named]["turn_id"]


async def test_a_conversation_goes_on_in_another_dialect(gateway):
    async with gateway() as g, client_of(g) as client:
        g.engine.say("Paris.")
        await client.responses.create(model="default", input="Capital of France?")
        await g.answer(
            user("Capital of France?"), {"role": "assistant", "content": "Paris."}, user("Thanks")
        )
        first, second = g.turns()
        assert second["parent_id"] == first["turn_id"]


async def test_length_ends_a_response_as_incomplete(gateway):
    async with gateway() as g, client_of(g) as client:
        g.engine.say("A long answer.")
        for stream in (False, True):
            made = await client.responses.create(
                model="default", input="Hi", max_output_tokens=6, stream=stream
            )
            if stream:
                *_, last = [event async for event in made]
                assert last.type == "response.incomplete"
                made = last.response
            assert (made.status, made.output_text) == ("incomplete", "A long")
            assert made.incomplete_details.reason == "max_output_tokens"
            assert made.output[-1].status == "incomplete"
            assert made.usage.output_tokens == 6


async def test_usage_tells_thoughts_and_cached_tokens(tools_gateway, thinker):
    async with tools_gateway() as g, client_of(g) as client:
        g.engine.say("<think>\nHm.\n</think>\n\nYes.")
        made = await ask(client, stream=False, input="?")
        assert made.usage.input_tokens == len(g.engine.requests[0].prompt_ids)
        assert made.usage.input_tokens_details.cached_tokens == 4
        assert made.usage.output_tokens_details.reasoning_tokens >= len("Hm.")
        assert made.usage.output_tokens_details.reasoning_tokens < made.usage.output_tokens / 2


async def test_tokens_that_come_together_are_told_apart_like_those_that_come_one_by_one(
    tools_gateway,
):
    """Joined, thoughts took the log-probabilities of the text, and all tokens were thoughts."""
    async with tools_gateway() as g, client_of(g) as client:
        told = []
        for together in (False, True):
            g.engine.say("<think>\nHm.\n</think>\n\nYes.", together=together)
            made = await ask(client, stream=False, input="?", top_logprobs=1)
            (part,) = made.output[-1].content
            told.append((part.text, part.logprobs, made.usage.output_tokens_details))
        one_by_one, at_once = told
        assert at_once == one_by_one
        assert at_once[1]


async def test_an_engine_that_fails_in_a_stream_gives_a_failed_response(gateway):
    async with gateway() as g, client_of(g, max_retries=0) as client:
        g.engine.say("Paris.", error=EngineUnavailable("it went away"), error_after=3)
        events = [
            event
            async for event in await client.responses.create(
                model="default", input="Hi", stream=True
            )
        ]
        assert events[-1].type == "response.failed"
        assert events[-1].response.status == "failed"
        assert events[-1].response.error.code == "server_error"
        assert [event.sequence_number for event in events] == list(range(len(events)))
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.create(model="default", input="Hi")
        assert caught.value.status_code == 503
        assert {turn["fate"] for turn in g.turns()} == {"engine_failed"}


async def test_a_client_that_goes_away_aborts_its_turn(gateway):
    async with gateway() as g, client_of(g) as client:
        gate = asyncio.Event()
        g.engine.say("Paris.", gate=gate, gate_after=2)
        stream = await client.responses.create(model="default", input="Hi", stream=True)
        await anext(aiter(stream))
        await stream.close()
        await g.eventually(lambda: g.engine.running == 0)
        await g.eventually(lambda: g.turns()[0]["fate"] == "client_gone")


async def test_log_probabilities_come_where_they_are_asked_for(gateway):
    async with gateway() as g, client_of(g) as client:
        g.engine.say("né")
        made = await client.responses.create(
            model="default",
            input="Hi",
            include=["message.output_text.logprobs"],
            top_logprobs=1,
        )
        (part,) = made.output[0].content
        assert [entry.logprob for entry in part.logprobs] == [-0.5] * 3
        assert bytes(part.logprobs[1].bytes + part.logprobs[2].bytes).decode() == "é"
        plain = await client.responses.create(model="default", input="Hi")
        assert plain.output[0].content[0].logprobs == []


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"background": True}, "background"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, None),
    ],
)
async def test_what_is_not_served_is_refused_by_name(gateway, asked, param):
    async with gateway() as g, client_of(g) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(**{"model": "default", "input": "Hi", **asked})
        assert caught.value.param == (param or "input[0].content[0]")
        assert g.turns() == []


async def test_headers_name_session_and_turn_as_everywhere(gateway):
    async with gateway() as g, client_of(g) as client:
        raw = await client.responses.with_raw_response.create(
            model="default",
            input="Title?",
            extra_headers={"X-Session-Id": "alpha", "X-Turn-Type": "side"},
        )
        (turn,) = g.turns()
        assert raw.headers["x-rejoinder-turn-id"] == turn["turn_id"]
        assert raw.headers["x-rejoinder-session-id"] == turn["session_id"]
        assert (turn["turn_type"], turn["fate"]) == ("side", "side")
        (session,) = g.rows("SELECT external FROM sessions")
        assert session["external"] == "alpha"


async def test_a_persons_score_finds_the_response(gateway):
    async with gateway() as g, client_of(g) as client:
        made = await client.responses.create(model="default", input="Hi")
        sent = await g.client.post("/v1/feedback", json={"completion_id": made.id, "score": 1})
        assert sent.json()["outcome"] == "accepted"


async def test_a_journal_that_cannot_be_read_refuses_a_named_response(gateway, monkeypatch):
    async with gateway() as g, client_of(g, max_retries=0) as client:

        def broken(*_: object) -> None:
            raise OSError("disk gone")

        monkeypatch.setattr(g.journal, "read_earlier", broken)
        monkeypatch.setattr(g.journal, "read_response", broken)
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.create(
                model="default", input="Hi", previous_response_id="resp_1"
            )
        assert caught.value.code == "journal_unavailable"
        with pytest.raises(openai.InternalServerError):
            await client.responses.retrieve("resp_1")


async def test_a_response_that_could_not_be_recorded_says_so_and_is_not_there(gateway, monkeypatch):
    async with gateway() as g, client_of(g) as client:

        def full(*_: object) -> None:
            raise OSError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr(g.journal, "finish_turn", full)
            whole = await client.responses.create(model="default", input="Hi")
            events = await client.responses.create(model="default", input="Hi", stream=True)
            *_, last = [event async for event in events]
        for made in (whole, last.response):
            assert made.output_text == "Paris."
            assert made.to_dict()["recorded"] is False
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(made.id)


async def test_a_conversation_that_has_grown_too_long_is_refused(gateway):
    async with gateway() as g, client_of(g) as client:
        made = await client.responses.create(model="default", input="Hi")
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(
                model="default", input=[user("?")] * 599, previous_response_id=made.id
            )
        assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "field",
    ["metadata", "tools", "tool_choice", "max_output_tokens"],
)
async def test_what_is_only_given_back_may_be_deep_and_large(gateway, stream, field):
    deep: Any = {}
    for _ in range(300):
        deep = {"a": deep}
    value = {
        "metadata": {"deep": deep, "large": 10**30},
        "tools": [{"type": "function", "name": "f", "parameters": deep}],
        "tool_choice": {"type": "allowed_tools", "tools": [], "more": deep},
        "max_output_tokens": 10**30,
    }[field]
    async with gateway() as g:
        body = json.dumps({"input": "Hi", "stream": stream, field: value})
        response = await g.client.post("/v1/responses", content=body)
        assert response.status_code == 200
        assert "Paris." in response.text


async def test_the_description_of_the_api_has_the_paths(gateway):
    async with gateway() as g:
        described = (await g.client.get("/openapi.json")).json()
        assert "ResponsesBody" in described["components"]["schemas"]
        assert set(described["paths"]["/v1/responses/{response_id}"]) == {"get", "delete"}
        assert "post" in described["paths"]["/v1/responses"]


def test_finish_reasons_are_all_told() -> None:
    """A new one needs a status of its own."""
    assert set(FinishReason) == {FinishReason.STOP, FinishReason.LENGTH}
