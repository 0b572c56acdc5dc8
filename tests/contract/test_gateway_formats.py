"""The form of an answer that a client asks for: what the engine is told, and what is recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from gateway_kit import THINKING_TEMPLATE, Running, running, user

from rejoinder.engine.base import Constraint, Form
from rejoinder.errors import ConstraintRefused
from rejoinder.journal.columns import decode_sampling

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
# Each API: path, body, where the form stands, and whether it enforces all of a schema.
CHAT = {"messages": [user("Hi")]}
RESPONSES = {"input": "Hi"}
MESSAGES = {"messages": [user("Hi")], "max_tokens": 50}
FORM = {"type": "json_schema", "schema": SCHEMA}
STRICT = {"name": "x", "schema": SCHEMA, "strict": True}
APIS = [
    pytest.param(
        "/v1/chat/completions",
        {**CHAT, "response_format": {"type": "json_schema", "json_schema": STRICT}},
        "response_format.json_schema",
        id="chat",
    ),
    pytest.param(
        "/v1/responses",
        {**RESPONSES, "text": {"format": {"type": "json_schema", **STRICT}}},
        "text.format",
        id="responses",
    ),
    pytest.param(
        "/v1/messages",
        {**MESSAGES, "output_config": {"format": FORM}},
        "output_config.format",
        id="messages",
    ),
]
LENIENT = [
    pytest.param(
        "/v1/chat/completions",
        {
            **CHAT,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", **FORM}},
        },
        id="chat",
    ),
    pytest.param(
        "/v1/responses", {**RESPONSES, "text": {"format": {"name": "x", **FORM}}}, id="responses"
    ),
]


async def ask(g: Running, path: str, body: dict[str, Any], **more: Any) -> Any:
    return await g.client.post(path, json={"model": "default", **body, **more})


@pytest.mark.parametrize(("path", "body", "param"), APIS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_engine_is_told_the_schema_in_the_clients_order_and_nothing_trains(
    gateway, path, body, param, stream
):
    async with gateway() as g:
        g.engine.say('{"b": 1}')
        response = await ask(g, path, body, stream=stream)
        assert response.status_code == 200, response.text
        assert '{\\"b\\": 1}' in response.text or stream
        (request,) = g.engine.requests
        form = Form(json.dumps(SCHEMA, separators=(",", ":")))
        assert request.constraint == Constraint([form])
        (turn,) = g.turns()
        assert turn["fate"] == "sampling_not_trainable"
        (row,) = g.rows("SELECT sampling FROM prompts")
        assert decode_sampling(row["sampling"]).constrained


@pytest.mark.parametrize(("path", "body"), LENIENT)
async def test_a_schema_that_is_not_strict_is_enforced_as_far_as_it_can_be(gateway, path, body):
    async with gateway() as g:
        assert (await ask(g, path, body)).status_code == 200
        assert g.engine.requests[0].constraint.forms[0].lenient


async def test_an_answer_without_a_form_is_not_constrained(gateway):
    async with gateway() as g:
        await g.answer(user("Hi"), response_format={"type": "text"})
        assert g.engine.requests[0].constraint is None
        assert g.turns()[0]["fate"] is None


@pytest.mark.parametrize(("path", "body", "param"), APIS)
async def test_an_engine_that_cannot_constrain_is_named_in_a_400(gateway, path, body, param):
    async with gateway() as g:
        g.engine.capabilities = ["logprobs"]
        await g.service.probe_engine()
        response = await ask(g, path, body)
        assert response.status_code == 400
        error = response.json()["error"]
        assert param in error["message"]
        assert "engine.kind" in error["message"]
        assert g.turns() == []


@pytest.mark.parametrize(("path", "body", "param"), APIS)
async def test_a_schema_that_the_engine_refuses_is_a_400_that_names_field_and_fault(
    gateway, path, body, param
):
    async with gateway() as g:
        g.engine.say("", error=ConstraintRefused("the schema cannot be enforced: Invalid type"))
        response = await ask(g, path, body)
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["message"].startswith(f"{param}: the schema cannot be enforced")
        assert error.get("param", param) == param


async def test_a_schema_that_turns_out_too_dear_ends_the_stream_with_an_error(gateway):
    async with gateway() as g:
        fault = ConstraintRefused("the schema is too complex")
        g.engine.say('{"b": 1}', error=fault, error_after=3)
        format_ = {"type": "json_object"}
        *_, last = await g.events(user("Hi"), response_format=format_)
        assert last.json["error"]["param"] == "response_format"
        assert g.turns()[0]["state"] == "aborted"
        assert g.turns()[0]["fate"] == "refused"


async def test_an_answer_that_is_cut_says_so(gateway):
    async with gateway() as g:
        g.engine.say('{"b": 1}')
        cut = {"max_tokens": 4, "response_format": {"type": "json_object"}}
        answer = await g.answer(user("Hi"), **cut)
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["choices"][0]["message"]["content"] == '{"b"'


async def test_a_call_may_come_in_the_place_of_the_form(tools_gateway, thinker):
    async with tools_gateway() as g:
        g.engine.say('<tool_call>{"name": "weather", "arguments": {}}</tool_call>')
        form = {"type": "json_object"}
        answer = await g.answer(user("Hi"), tools=TOOLS, response_format=form)
        assert answer["choices"][0]["finish_reason"] == "tool_calls"
        assert g.engine.requests[0].constraint.unless == [thinker.token_to_id("<tool_call>")]


async def test_a_call_that_is_asked_for_is_not_held_to_the_form(tools_gateway):
    async with tools_gateway() as g:
        g.engine.say(" {}}</tool_call>")
        form = {"type": "json_object"}
        await g.answer(user("Hi"), tools=TOOLS, response_format=form, tool_choice="required")
        (form,) = g.engine.requests[0].constraint.forms
        assert form.after.endswith("</tool_call>")


async def test_thoughts_that_the_template_opens_are_closed_before_the_form(thinker, journal_url):
    """Else the whole answer would be thoughts."""
    opens = THINKING_TEMPLATE.replace("assistant\n' }}", "assistant\n<think>\n' }}")
    async with running(replace(thinker, chat_template=opens), journal_url) as g:
        g.engine.say('{"b": 1}')
        answer = await g.answer(user("Hi"), response_format={"type": "json_object"})
        assert answer["choices"][0]["message"]["content"].strip() == '{"b": 1}'
        prompt = thinker.decode(g.engine.requests[0].prompt_ids, skip_special_tokens=False)
        assert prompt.endswith("<think>\n\n</think>\n\n")


async def test_responses_say_which_form_they_were_asked_for(gateway):
    async with gateway() as g:
        body = {**RESPONSES, "text": {"format": {"type": "json_schema", **STRICT}}}
        made = (await ask(g, "/v1/responses", body)).json()
        assert made["text"] == {"format": {"type": "json_schema", **STRICT}}
        plain = (await ask(g, "/v1/responses", RESPONSES)).json()
        assert plain["text"] == {"format": {"type": "text"}}
