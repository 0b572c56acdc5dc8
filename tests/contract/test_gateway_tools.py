"""Thoughts and tool calls through the gateway: three turns with a call, streamed and not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from gateway_kit import Json, Running, Script, running, user

import openclaw_requests as oc
from rejoinder.journal.columns import decode_ids
from rejoinder.journal.payloads import read_messages
from rejoinder.judge.transcript import content_of
from rejoinder.models.tokenizer import ModelTokenizer

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
ARGUMENTS = '{"city": "Zürich", "days": 2}'
CALL = (
    "<think>\nThey ask for the weather.\n</think>\n\nLet me see.\n"
    f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
)
ANSWERS = (CALL, "<think>\n\n</think>\n\nRain. ☂", "You are welcome.")


def _answer_of(request: Any, tokenizer: ModelTokenizer) -> str:
    """The answer of the script: by how many answers the prompt has."""
    prompt = tokenizer.decode(request.prompt_ids, skip_special_tokens=False)
    return ANSWERS[prompt.count("<|im_start|>assistant\n") - 1]


async def _ask(g: Running, messages: list[Json], *, stream: bool) -> Json:
    """Return the answer's message and finish reason, put together as clients do."""
    if not stream:
        choice = (await g.answer(*messages, tools=TOOLS))["choices"][0]
        return choice["message"] | {"why": choice["finish_reason"]}
    made: Json = {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": []}
    for event in (await g.events(*messages, tools=TOOLS))[:-1]:
        (choice,) = event.json["choices"]
        delta = choice["delta"]
        made["content"] += delta.get("content") or ""
        made["reasoning_content"] += delta.get("reasoning_content") or ""
        for part in delta.get("tool_calls") or []:
            if part["index"] == len(made["tool_calls"]):
                made["tool_calls"].append(part)
            else:
                written = part["function"]["arguments"]
                made["tool_calls"][part["index"]]["function"]["arguments"] += written
        made["why"] = choice["finish_reason"] or made.get("why")
    return made


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_conversation_with_a_tool_call_is_served_linked_and_recorded(
    tools_gateway, thinker, stream
):
    async with tools_gateway() as g:
        g.engine.script = lambda request: Script(_answer_of(request, thinker))
        messages = [user("What is the weather in Zürich?")]
        first = await _ask(g, messages, stream=stream)
        (call,) = first["tool_calls"]
        assert first["why"] == "tool_calls"
        assert first["content"] == "Let me see."
        assert first["reasoning_content"] == "They ask for the weather."
        assert call["function"] == {"name": "weather", "arguments": ARGUMENTS}
        assert (call["type"], call["id"][:5]) == ("function", "call_")

        # As agents send it back: other spacing, another id, no thoughts, null for no content.
        spaced = json.dumps(json.loads(ARGUMENTS), separators=(",", ":"))
        replayed = {"name": "weather", "arguments": spaced}
        calls = [{"id": "x1", "type": "function", "function": replayed}]
        messages += [
            {"role": "assistant", "content": first["content"], "tool_calls": calls},
            {"role": "tool", "tool_call_id": "x1", "content": "rain"},
        ]
        second = await _ask(g, messages, stream=stream)
        assert (second["content"], second["why"]) == ("Rain. ☂", "stop")
        assert not second.get("tool_calls")

        messages += [{"role": "assistant", "content": second["content"]}, user("Thanks!")]
        third = await _ask(g, messages, stream=stream)
        assert third["content"] == "You are welcome."
        _check_records(g, thinker)


def _check_records(g: Running, tokenizer: ModelTokenizer) -> None:
    """The sampled ids, one session, each answer the parent of the next, and what a judge reads."""
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
    assert content_of(kept) == f"Let me see.\n[calls weather {ARGUMENTS}]"


async def test_a_call_alone_has_null_content_and_one_event_begins_it(tools_gateway):
    text = f'<tool_call>{{"name": "weather", "arguments": {ARGUMENTS}}}</tool_call>'
    async with tools_gateway() as g:
        g.engine.say(text)
        body = await g.answer(user("?"), tools=TOOLS)
        assert body["choices"][0]["message"]["content"] is None
        events = await g.events(user("?"), tools=TOOLS)
        deltas = [event.json["choices"][0]["delta"] for event in events[:-1]]
        calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
        assert calls[0]["function"] == {"name": "weather", "arguments": ""}
        assert all("id" not in part and "name" not in part["function"] for part in calls[1:])
        assert len(calls) > 5, "arguments come as they are sampled"
        assert "".join(part["function"]["arguments"] for part in calls) == ARGUMENTS


async def test_parallel_calls_have_indices_and_a_cut_one_ends_by_length(tools_gateway):
    call = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>\n'
    async with tools_gateway() as g:
        g.engine.say(call * 2 + '<tool_call>{"name": "weather", "arguments": {"city": "Bern"}}')
        body = await g.answer(user("?"), tools=TOOLS)
        assert len(body["choices"][0]["message"]["tool_calls"]) == 3
        events = await g.events(user("?"), tools=TOOLS)
        begun = [
            part["index"]
            for event in events[:-1]
            for part in event.json["choices"][0]["delta"].get("tool_calls", [])
            if "id" in part
        ]
        assert begun == [0, 1, 2]
        cut = (await g.answer(user("?"), tools=TOOLS, max_tokens=60))["choices"][0]
        assert cut["finish_reason"] == "length"


async def test_tool_choice_none_gives_the_same_text_as_content(tools_gateway):
    async with tools_gateway() as g:
        g.engine.say(CALL)
        body = await g.answer(user("?"), tools=TOOLS, tool_choice="none")
        message = body["choices"][0]["message"]
        assert "tool_calls" not in message
        assert message["content"] == CALL.partition("</think>\n\n")[2]
        assert body["choices"][0]["finish_reason"] == "stop"
        prompt = g.engine.tokenizer.decode(g.engine.requests[0].prompt_ids)
        assert "<tools>" not in prompt


async def test_reasoning_that_a_client_sends_back_reaches_the_template(tools_gateway):
    async with tools_gateway() as g:
        earlier = {"role": "assistant", "content": "Hi.", "reasoning_content": "Greet them."}
        await g.answer(user("Hello"), earlier, user("Again"))
        prompt = g.engine.tokenizer.decode(g.engine.requests[0].prompt_ids)
        assert "<think>Greet them.</think>Hi." in prompt


async def test_logprobs_of_tokens_that_wait_are_sent_with_an_empty_delta(tools_gateway):
    async with tools_gateway() as g:
        g.engine.say(CALL)
        events = await g.events(user("?"), tools=TOOLS, logprobs=True)
        told = [
            entry["token"]
            for event in events[:-1]
            for entry in (event.json["choices"][0]["logprobs"] or {}).get("content", [])
        ]
        (row,) = g.rows("SELECT answer_ids FROM answers")
        assert len(told) == len(decode_ids(row["answer_ids"]))


async def test_the_official_client_puts_a_streamed_call_together(tools_gateway):
    from openai import AsyncOpenAI

    async with tools_gateway() as g:
        g.engine.say(CALL)
        async with AsyncOpenAI(base_url=f"{g.base_url}/v1", api_key="none") as client:
            asked = {"model": "default", "messages": [user("?")], "tools": TOOLS}
            async with client.chat.completions.stream(**asked) as stream:
                kinds = {event.type async for event in stream}
                streamed = await stream.get_final_completion()
            whole = await client.chat.completions.create(**asked)
        assert "tool_calls.function.arguments.delta" in kinds
        for completion in (streamed, whole):
            (choice,) = completion.choices
            (call,) = choice.message.tool_calls
            assert (call.function.name, call.function.arguments) == ("weather", ARGUMENTS)
            assert choice.message.content == "Let me see."
            assert choice.finish_reason == "tool_calls"


async def test_openclaws_tool_result_judges_the_call_and_not_its_block_of_context(tools_gateway):
    async with tools_gateway() as g:
        g.engine.context_length = 100_000
        await g.service.probe_engine()
        task = [oc.system(), oc.first_user("Run echo hi", "abc")]
        command = '{"command": "echo hi"}'
        g.engine.say(
            f'Let me run it.\n<tool_call>{{"name": "exec", "arguments": {command}}}</tool_call>'
        )
        sent = oc.body(*task, oc.context()) | {"tools": TOOLS}
        await g.client.post("/v1/chat/completions", json=sent, headers=oc.headers("a"))
        g.engine.say("Done.")
        replayed = [oc.called("call1"), oc.result("call1", "hi")]  # null content, an id of its own
        sent = oc.body(*task, *replayed, oc.context("1 running")) | {"tools": TOOLS}
        await g.client.post("/v1/chat/completions", json=sent, headers=oc.headers("a"))
        first, second = g.turns()
        assert second["parent_id"] == first["turn_id"]
        (state,) = g.rows("SELECT turn_id, kind, messages FROM next_states")
        assert (state["turn_id"], state["kind"]) == (first["turn_id"], "tool")
        assert b"OPENCLAW" not in state["messages"]


@pytest.mark.parametrize(
    ("kept", "parent"), [("Second.", 1), ("First.", 0), (None, None)], ids=["2nd", "1st", "none"]
)
async def test_answers_with_one_call_are_told_apart_by_the_text_that_comes_back(
    tools_gateway, kept, parent
):
    async with tools_gateway() as g:
        call = '<tool_call>{"name": "exec", "arguments": {"command": "echo hi"}}</tool_call>'
        texts = ("First.", "Second.")
        g.engine.script = lambda request: Script(f"{texts[request.sampling.seed]}\n{call}")
        await g.answer(user("go"), tools=TOOLS, n=2, seed=0)
        g.engine.say("Done.")
        replayed = [oc.called("x", content=kept), oc.result("x", "hi")]
        await g.answer(user("go"), *replayed, tools=TOOLS)
        turns = g.turns()
        expected = None if parent is None else turns[parent]["turn_id"]
        assert turns[2]["parent_id"] == expected


FORCED = (
    pytest.param({"type": "function", "function": {"name": "weather"}}, id="by its name"),
    pytest.param("required", id="the only tool"),
)


@pytest.mark.parametrize("choice", FORCED)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_call_that_is_asked_for_is_begun_in_the_prompt(tools_gateway, choice, stream):
    async with tools_gateway() as g:
        g.engine.say(' {"city": "Bern"}}</tool_call>')
        await g.answer(user("?"), tools=TOOLS)
        asked = {"tools": TOOLS, "tool_choice": choice, "stop": ["weather"]}
        if stream:
            events = [event.json for event in (await g.events(user("?"), **asked))[:-1]]
            deltas = [event["choices"][0]["delta"] for event in events]
            calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
            assert calls[0]["function"] == {"name": "weather", "arguments": ""}
            arguments = "".join(call["function"].get("arguments", "") for call in calls)
            reason = events[-1]["choices"][0]["finish_reason"]
        else:
            (found,) = (await g.answer(user("?"), **asked))["choices"]
            (call,) = found["message"]["tool_calls"]
            assert call["function"]["name"] == "weather"
            assert found["message"]["content"] is None
            arguments, reason = call["function"]["arguments"], found["finish_reason"]
        assert (json.loads(arguments), reason) == ({"city": "Bern"}, "tool_calls")


@pytest.mark.parametrize("named", [False, True], ids=["any", "by its name"])
async def test_every_api_begins_a_call_that_is_asked_for(tools_gateway, thinker, named):
    schema = {"type": "object"}
    responses = {
        "input": "?",
        "tools": [{"type": "function", "name": "weather", "parameters": schema}],
        "tool_choice": {"type": "function", "name": "weather"} if named else "required",
    }
    messages = {
        "messages": [user("?")],
        "max_tokens": 64,
        "tools": [{"name": "weather", "input_schema": schema}],
        "tool_choice": {"type": "tool", "name": "weather"} if named else {"type": "any"},
    }
    async with tools_gateway() as g:
        g.engine.say(' {"city": "Bern"}}</tool_call>')
        (item,) = (await g.client.post("/v1/responses", json=responses)).json()["output"]
        assert (item["name"], json.loads(item["arguments"])) == ("weather", {"city": "Bern"})
        (block,) = (await g.client.post("/v1/messages", json=messages)).json()["content"]
        assert (block["name"], block["input"]) == ("weather", {"city": "Bern"})
        begun = thinker.encode('<tool_call>\n{"name": "weather", "arguments":')
        for request in g.engine.requests:
            assert list(request.prompt_ids)[-len(begun) :] == list(begun)


async def test_what_begins_a_call_was_not_sampled_and_is_recorded_so(tools_gateway, thinker):
    """Rule 1: it stands in the prompt, where nothing trains."""
    async with tools_gateway() as g:
        g.engine.say(' {"city": "Bern"}}</tool_call>')
        await g.answer(user("?"), tools=TOOLS)
        await g.answer(user("?"), tools=TOOLS, tool_choice="required")
        free, forced = (request.prompt_ids for request in g.engine.requests)
        begun = thinker.encode('<tool_call>\n{"name": "weather", "arguments":')
        assert forced == free + begun
        turn_id = g.turns()[1]["turn_id"]
        prompt, sampled = g.journal.read_turn_ids(turn_id)
        assert prompt == forced
        assert thinker.decode(sampled) == ' {"city": "Bern"}}</tool_call>'
        (entry,) = g.journal.explain_turn(turn_id)
        assert entry["link"]["begun"] == len(begun)


async def test_of_several_tools_the_model_names_the_one_that_it_calls(tools_gateway):
    async with tools_gateway() as g:
        other = {"type": "function", "function": {"name": "other"}}
        g.engine.say(' "other", "arguments": {}}</tool_call>')
        body = await g.answer(user("?"), tools=[*TOOLS, other], tool_choice="required")
        (call,) = body["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "other", "arguments": "{}"}


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ((), "required"),
        (TOOLS, {"type": "function", "function": {"name": "unknown"}}),
        (TOOLS, {"type": "function", "name": "weather"}),
        (TOOLS, {"type": "function", "function": {"name": ["weather"]}}),
        (TOOLS, "weather"),
        ([{"function": {"name": 'w"}<|im_end|>'}}], {"function": {"name": 'w"}<|im_end|>'}}),
    ],
)
async def test_a_choice_that_cannot_be_met_is_refused(tools_gateway, tools, choice):
    async with tools_gateway() as g:
        response = await g.chat(user("?"), tools=tools, tool_choice=choice)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "tool_choice"
        assert g.turns() == []


async def test_a_model_whose_calls_are_not_read_says_so(tiny_tokenizer, journal_url):
    plain = replace(
        tiny_tokenizer, chat_template="{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    async with running(plain, journal_url) as g:
        response = await g.chat(user("?"), tools=TOOLS, tool_choice="required")
        assert response.status_code == 400
        assert "model.family" in response.json()["error"]["message"]
        assert (await g.chat(user("?"), tools=TOOLS, tool_choice="auto")).status_code == 200
