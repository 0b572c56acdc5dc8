"""``/v1/completions`` as the official client sees it: raw prompts, served and not trained."""

from __future__ import annotations

import openai
import pytest
from gateway_kit import Script
from openai import AsyncOpenAI

from rejoinder.errors import EngineUnavailable
from rejoinder.journal.columns import decode_ids

ASK = {"model": "default", "prompt": "Once upon"}


def client_of(g) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{g.base_url}/v1", api_key="any", max_retries=0)


async def test_a_prompt_reaches_the_engine_as_it_is_and_is_gone_on_with(gateway, tiny_tokenizer):
    async with gateway() as g, client_of(g) as client:
        g.engine.say(" a time.")
        made = await client.completions.create(**ASK)
        assert (made.object, made.choices[0].text) == ("text_completion", " a time.")
        assert made.choices[0].finish_reason == "stop"
        assert g.engine.requests[0].prompt_ids == tiny_tokenizer.encode("Once upon")
        assert g.engine.requests[0].sampling.max_tokens == 16
        assert made.usage.prompt_tokens == len("Once upon")
        assert made.usage.completion_tokens == len(" a time.") + 1
        (row,) = g.rows("SELECT answer_ids FROM answers")
        ids = [*tiny_tokenizer.encode(" a time."), *tiny_tokenizer.eos_ids]
        assert decode_ids(row["answer_ids"]) == ids


async def test_a_stream_says_the_same(gateway):
    async with gateway() as g, client_of(g) as client:
        g.engine.say(" a time ☂")
        stream = await client.completions.create(
            **ASK, stream=True, max_tokens=40, stream_options={"include_usage": True}
        )
        events = [event async for event in stream]
        assert "".join(c.text for event in events for c in event.choices) == " a time ☂"
        reasons = [c.finish_reason for event in events for c in event.choices]
        assert reasons == [None] * (len(reasons) - 1) + ["stop"]
        assert events[-1].usage.completion_tokens == len(" a time ☂".encode()) + 1


async def test_turns_are_side_turns_unless_something_says_otherwise(gateway):
    async with gateway() as g, client_of(g) as client:
        await client.completions.create(**ASK)
        await client.completions.create(**ASK, extra_headers={"X-Turn-Type": "main"})
        await client.completions.create(**ASK, extra_body={"turn_type": "main"})
        turns = g.turns()
        assert [turn["turn_type"] for turn in turns] == ["side", "main", "main"]
        assert [turn["fate"] for turn in turns] == ["side", None, None]


async def test_a_main_turn_can_be_scored_by_a_person(gateway):
    async with gateway() as g, client_of(g) as client:
        made = await client.completions.create(**ASK, extra_headers={"X-Turn-Type": "main"})
        sent = await g.client.post("/v1/feedback", json={"completion_id": made.id, "score": 1})
        assert sent.json()["outcome"] == "accepted"


@pytest.mark.parametrize("as_ids", [False, True], ids=["texts", "ids"])
async def test_several_prompts_have_their_answers_in_order(gateway, tiny_tokenizer, as_ids):
    async with gateway() as g, client_of(g) as client:
        g.engine.script = lambda request: Script(
            f"{tiny_tokenizer.decode(request.prompt_ids)}{request.sampling.seed}"
        )
        prompts = ["one", "three"]
        sent = [tiny_tokenizer.encode(prompt) for prompt in prompts] if as_ids else prompts
        made = await client.completions.create(model="default", prompt=sent, n=2, seed=7)
        texts = [(choice.index, choice.text) for choice in made.choices]
        assert texts == [(0, "one7"), (1, "one8"), (2, "three7"), (3, "three8")]
        assert made.usage.prompt_tokens == len("one") + len("three")
        assert made.usage.prompt_tokens_details.cached_tokens == 8
        turns = g.turns()
        assert [turn["choice"] for turn in turns] == [0, 1, 2, 3]
        assert [turn["prompt_tokens"] for turn in turns] == [3, 3, 5, 5]
        said = [g.journal.read_request(turn["turn_id"]).messages[0].content for turn in turns]
        assert said == ["one", "one", "three", "three"]


async def test_ids_may_hold_special_tokens(gateway, tiny_tokenizer):
    async with gateway() as g, client_of(g) as client:
        ids = [*tiny_tokenizer.eos_ids, *tiny_tokenizer.encode("Once")]
        await client.completions.create(model="default", prompt=ids)
        assert g.engine.requests[0].prompt_ids == ids


async def test_answers_are_text_as_it_is_whatever_the_family(tools_gateway):
    text = '<think>Hm.</think><tool_call>{"name": "f", "arguments": {}}</tool_call>'
    async with tools_gateway() as g, client_of(g) as client:
        g.engine.say(text)
        made = await client.completions.create(**ASK, max_tokens=100)
        assert made.choices[0].text == text
        assert made.choices[0].finish_reason == "stop"


async def test_a_stop_string_ends_the_text_before_it(gateway):
    async with gateway() as g, client_of(g) as client:
        g.engine.say(" a time.\nThe end.")
        made = await client.completions.create(**ASK, stop="\n")
        assert (made.choices[0].text, made.choices[0].finish_reason) == (" a time.", "stop")
        made = await client.completions.create(**ASK, max_tokens=3)
        assert (made.choices[0].text, made.choices[0].finish_reason) == (" a ", "length")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_log_probabilities_have_the_legacy_form(gateway, stream):
    async with gateway() as g, client_of(g) as client:
        g.engine.say("né!")
        made = await client.completions.create(**ASK, logprobs=1, stream=stream)
        if stream:
            parts = [c.logprobs async for event in made for c in event.choices if c.logprobs]
        else:
            parts = [made.choices[0].logprobs]
        tokens = [token for part in parts for token in part.tokens]
        assert tokens[:4] == ["n", "bytes:\\xc3", "bytes:\\xa9", "!"]
        assert [offset for part in parts for offset in part.text_offset][:4] == [0, 1, 1, 2]
        assert {value for part in parts for value in part.token_logprobs} == {-0.5}
        assert parts[0].top_logprobs[0] == {"n": -0.5}


async def test_an_id_that_the_vocabulary_lacks_is_refused(gateway, tiny_tokenizer):
    async with gateway() as g, client_of(g) as client:
        for bad in (-1, tiny_tokenizer.vocab_size):
            with pytest.raises(openai.BadRequestError) as caught:
                await client.completions.create(model="default", prompt=[bad])
            assert caught.value.param == "prompt"
        assert g.turns() == []


@pytest.mark.parametrize("prompts", ["x" * 600, ["short", "x" * 600]])
async def test_a_prompt_that_fills_the_context_is_refused(gateway, prompts):
    async with gateway() as g, client_of(g) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(model="default", prompt=prompts)
        assert caught.value.code == "context_length_exceeded"
        assert g.engine.requests == []


async def test_an_engine_that_fails_gives_its_error(gateway):
    async with gateway() as g, client_of(g) as client:
        g.engine.say("Paris.", error=EngineUnavailable("it went away"), error_after=3)
        with pytest.raises(openai.InternalServerError):
            await client.completions.create(**ASK)
        stream = await client.completions.create(**ASK, stream=True)
        with pytest.raises(openai.APIError, match="it went away"):
            [event async for event in stream]


async def test_prompts_of_one_request_share_a_session(gateway):
    async with gateway() as g, client_of(g) as client:
        await client.completions.create(model="default", prompt=["a", "b"])
        assert len({turn["session_id"] for turn in g.turns()}) == 1
