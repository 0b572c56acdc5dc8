"""The official Anthropic client: three turns with a tool call, streamed and not."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from gateway_kit import KEYS, Running, Script, user

from rejoinder.errors import EngineUnavailable
from rejoinder.journal.columns import decode_ids
from rejoinder.journal.payloads import read_messages
from rejoinder.models.tokenizer import ModelTokenizer

TOOLS: Any = [{"name": "weather", "description": "Tells it.", "input_schema": {"type": "object"}}]
INPUT = {"city": "Zürich", "days": 2}
CALL = (
    "<think>\nThey ask for the weather.\n</think>\n\nLet me see.\n<tool_call>\n"
    f'{{"name": "weather", "arguments": {json.dumps(INPUT, ensure_ascii=False)}}}\n</tool_call>'
)
ANSWERS = (CALL, "<think>\n\n</think>\n\nRain. ☂", "You are welcome.")


def _answer_of(request: Any, tokenizer: ModelTokenizer) -> str:
    """The answer of the script: by how many answers the prompt has."""
    prompt = tokenizer.decode(request.prompt_ids, skip_special_tokens=False)
    return ANSWERS[prompt.count("<|im_start|>assistant\n") - 1]


def client_of(g: Running, **settings: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        base_url=g.base_url, **{"api_key": "any", "max_retries": 0, **settings}
    )


async def _ask(client: anthropic.AsyncAnthropic, messages: list, *, stream: bool) -> Any:
    asked: Any = {
        "model": "default", "max_tokens": 400, "messages": messages, "tools": TOOLS,
        "system": "Be kind.", "thinking": {"type": "enabled", "budget_tokens": 1024},
    }  # fmt: skip
    if not stream:
        return await client.messages.create(**asked)
    async with client.messages.stream(**asked) as events:
        return await events.get_final_message()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_conversation_with_a_tool_call_is_served_linked_and_recorded(
    tools_gateway, thinker, stream
):
    async with tools_gateway() as g, client_of(g) as client:
        g.engine.script = lambda request: Script(_answer_of(request, thinker))
        messages: list[Any] = [user("What is the weather in Zürich?")]
        first = await _ask(client, messages, stream=stream)
        thought, said, call = first.content
        assert first.stop_reason == "tool_use"
        assert thought.thinking == "They ask for the weather."
        assert said.text == "Let me see."
        assert (call.name, call.input) == ("weather", INPUT)

        result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
        messages += [
            {"role": "assistant", "content": first.content},  # thoughts and all, as agents do
            {"role": "user", "content": [result]},
        ]
        second = await _ask(client, messages, stream=stream)
        assert [block.type for block in second.content] == ["text"]
        assert (second.content[0].text, second.stop_reason) == ("Rain. ☂", "end_turn")

        messages += [{"role": "assistant", "content": second.content}, user("Thanks!")]
        third = await _ask(client, messages, stream=stream)
        assert third.content[0].text == "You are welcome."
        assert third.usage.output_tokens == len(thinker.encode(ANSWERS[2])) + 1
        _check_records(g, thinker)


def _check_records(g: Running, tokenizer: ModelTokenizer) -> None:
    """The sampled ids, one session, each answer the parent of the next, thoughts kept."""
    rows = g.rows(
        "SELECT t.turn_id, t.session_id, t.parent_id, a.answer_ids, a.message "
        "FROM turns t JOIN answers a USING (turn_id) ORDER BY t.created_at"
    )
    assert len({row["session_id"] for row in rows}) == 1
    assert [row["parent_id"] for row in rows] == [None, rows[0]["turn_id"], rows[1]["turn_id"]]
    for row, text in zip(rows, ANSWERS, strict=True):
        assert decode_ids(row["answer_ids"]) == [*tokenizer.encode(text), *tokenizer.eos_ids]
    with g.journal.database.connect() as connection:
        (kept,) = read_messages(connection, rows[0]["message"])
    assert kept.reasoning == "They ask for the weather."
    states = g.rows("SELECT kind FROM next_states ORDER BY rowid")
    assert [state["kind"] for state in states] == ["tool", "user"]


def _lasting(block: Any) -> Any:
    """Blank what is another for each answer."""
    return block | {name: "any" for name in ("id", "signature") if name in block}


async def test_both_ways_give_the_same_message(tools_gateway):
    async with tools_gateway() as g, client_of(g) as client:
        g.engine.say(CALL)
        whole, streamed = [
            await _ask(client, [user("?")], stream=stream) for stream in (False, True)
        ]
        assert (whole.usage, whole.stop_reason) == (streamed.usage, streamed.stop_reason)
        made = [[_lasting(block.to_dict()) for block in it.content] for it in (whole, streamed)]
        assert made[0] == made[1]


async def test_refusals_are_the_clients_own_errors(gateway):
    async with gateway(keys=KEYS) as g:
        async with client_of(g, api_key="sk-wrong") as client:
            with pytest.raises(anthropic.AuthenticationError):
                await client.messages.create(model="default", max_tokens=9, messages=[user("Hi")])
        async with client_of(g, api_key="sk-alice-1") as client:
            with pytest.raises(anthropic.NotFoundError, match="there is no model"):
                await client.messages.create(model="claude", max_tokens=9, messages=[user("Hi")])
            with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
                await client.messages.create(model="default", max_tokens=0, messages=[user("Hi")])


async def test_a_broken_stream_is_an_error_for_the_client(gateway):
    async with gateway() as g, client_of(g) as client:
        g.engine.say("Paris", error=EngineUnavailable("engine died"), error_after=3)
        asked: Any = {"model": "default", "max_tokens": 9, "messages": [user("Hi")]}
        with pytest.raises(anthropic.APIStatusError, match="engine died"):
            async with client.messages.stream(**asked) as events:
                await events.until_done()


async def test_tokens_are_counted(gateway):
    async with gateway() as g, client_of(g) as client:
        counted = await client.messages.count_tokens(model="default", messages=[user("Hi")])
        await client.messages.create(model="default", max_tokens=9, messages=[user("Hi")])
        assert counted.input_tokens == len(g.engine.requests[0].prompt_ids)
