"""What the Messages dialect reads in a body, and how it refuses one."""

from __future__ import annotations

import json

import pytest

from rejoinder.errors import ContextLengthExceeded
from rejoinder.gateway.answer_format import AnswerFormat
from rejoinder.gateway.dialects.messages import CountTokens, Messages
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.tool_choice import WantedCall
from rejoinder.types import Message

HELLO = {"role": "user", "content": "Hi"}
TOOL = {"name": "weather", "description": "Tells it.", "input_schema": {"type": "object"}}


def read(**fields: object):
    body = {"messages": [HELLO], "max_tokens": 9, **fields}
    return Messages().read(json.dumps(body).encode(), 10)


def test_a_body_that_asks_for_nothing_special_has_the_apis_defaults():
    expected = TurnRequest(messages=(Message("user", "Hi"),), max_tokens=9)
    assert read().request == expected
    names = ("model", "system", "tools", "tool_choice", "thinking", "metadata", "stop_sequences")
    assert read(**dict.fromkeys(names)).request == expected


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"stream": True}, "stream", True),
        ({"temperature": 0.5}, "temperature", 0.5),
        ({"top_k": 4}, "top_k", 4),
        ({"stop_sequences": ["a", "b"]}, "stop", ("a", "b")),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "template_options",
         {"enable_thinking": True}),
        ({"thinking": {"type": "disabled"}}, "template_options", {"enable_thinking": False}),
        ({"metadata": {"session_id": "s"}}, "metadata", {"session_id": "s"}),
        ({"session_id": "s"}, "session_id", "s"),
        ({"turn_type": "side"}, "turn_type", "side"),
        ({"session_done": True}, "session_done", True),
    ],
)  # fmt: skip
def test_fields_become_the_request(fields, name, value):
    assert getattr(read(**fields).request, name) == value


def test_tools_take_the_form_that_chat_templates_know():
    function = {"name": "weather", "description": "Tells it.", "parameters": {"type": "object"}}
    assert read(tools=[TOOL]).request.tools == ({"type": "function", "function": function},)
    (strict,) = read(tools=[{**TOOL, "strict": True}]).request.tools
    assert strict["function"] == function | {"strict": True}
    for choice in ({"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "weather"}):
        assert len(read(tools=[TOOL], tool_choice=choice).request.tools) == 1
    assert read(tools=[TOOL], tool_choice={"type": "none"}).request.tools == ()


@pytest.mark.parametrize(
    ("choice", "call"),
    [
        ({"type": "auto"}, None),
        ({"type": "none"}, None),
        ({"type": "any"}, WantedCall("weather", several=True)),
        ({"type": "any", "disable_parallel_tool_use": True}, WantedCall("weather")),
        ({"type": "any", "disable_parallel_tool_use": False}, WantedCall("weather", several=True)),
        ({"type": "tool", "name": "weather"}, WantedCall("weather")),
    ],
)
def test_the_choice_says_which_call_is_asked_for(choice, call):
    assert read(tools=[TOOL], tool_choice=choice).request.wanted_call == call


def found(*names: str) -> dict:
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": references}
    return {"role": "user", "content": [result]}


@pytest.mark.parametrize(
    ("messages", "choice", "shown"),
    [
        ([HELLO], None, ["search"]),
        ([HELLO, found("clock")], None, ["search", "clock"]),
        ([found("clock"), found("weather", "no")], None, ["search", "weather", "clock"]),
        ([found("clock")], {"type": "none"}, []),
        ([HELLO], {"type": "tool", "name": "weather"}, ["search", "weather"]),
    ],
)  # fmt: skip
def test_deferred_tools_are_shown_once_a_result_refers_to_them(messages, choice, shown):
    tools = [
        {**TOOL, "name": "search", "defer_loading": False},
        {**TOOL, "defer_loading": True},
        {**TOOL, "name": "clock", "defer_loading": True},
    ]
    request = read(messages=messages, tools=tools, tool_choice=choice).request
    assert [tool["function"]["name"] for tool in request.tools] == shown


@pytest.mark.parametrize("choice", [{"type": "tool", "name": "unknown"}, {"type": "tool"}])
def test_a_call_of_no_tool_is_refused(choice):
    with pytest.raises(ApiError) as caught:
        read(tools=[TOOL], tool_choice=choice)
    assert (caught.value.status, caught.value.param) == (400, "tool_choice")


@pytest.mark.parametrize(
    ("user_id", "user"),
    [
        (None, ""),
        ("someone", "someone"),
        ("user_ab_account__session_5f3", "user_ab_account_"),
        ('{"device_id":"d","account_uuid":"","session_id":"5f3"}',
         '{"account_uuid": "", "device_id": "d"}'),
        ("{no json", "{no json"),
    ],
)  # fmt: skip
def test_a_users_sessions_do_not_part_them(user_id, user):
    assert read(metadata={"user_id": user_id}).request.user == user


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
        ({"tools": [{"input_schema": {}}]}, "tools[0]"),
        ({"tools": [TOOL, {"name": "web_search", "type": "web_search_20250305"}]}, "tools[1]"),
        ({"metadata": {"user_id": 5}}, "metadata.user_id"),
        ({"metadata": {"user_id": "x" * 513}}, "metadata.user_id"),
        ({"messages": []}, "messages"),
        ({"system": 5}, "system"),
    ],
)
def test_bad_fields_are_named(fields, param):
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_missing_length_is_named():
    with pytest.raises(ApiError) as caught:
        Messages().read(b'{"messages":[]}', 10)
    assert caught.value.param == "max_tokens"


def test_fields_without_effect_are_named_and_unknown_ones_are_not():
    fields = {"betas": ["x"], "output_config": {"effort": "low"}, "service_tier": "auto"}
    ignored = read(**fields, brand_new=1).ignored
    assert sorted(ignored) == ["betas", "other", "service_tier"]


@pytest.mark.parametrize(("kind", "ignored"), [("auto", True), ("none", True), ("any", False)])
def test_one_call_at_most_is_told_of_where_nothing_holds_it(kind, ignored):
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    choice = {"type": kind, "disable_parallel_tool_use": True}
    found = read(tools=tools, tool_choice=choice).ignored
    assert found == (["disable_parallel_tool_use"] if ignored else [])
    assert read(tools=tools, tool_choice={"type": kind}).ignored == []


FORM = {"type": "json_schema", "schema": {"b": 1, "a": 2}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"output_config": {"format": FORM}}, "output_config.format"),
        ({"output_format": FORM}, "output_format"),
        ({"output_config": {"format": FORM}, "output_format": {"type": "x"}},
         "output_config.format"),
    ],
)  # fmt: skip
def test_the_form_of_the_answer_is_read_from_its_new_and_its_old_place(fields, param):
    assert read(**fields).request.answer_format == AnswerFormat('{"b":1,"a":2}', False, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
        ({"output_config": {"format": {"type": "json_object"}}}, "output_config.format"),
        ({"output_format": {"type": "grammar"}}, "output_format"),
    ],
)
def test_another_form_is_refused(fields, param):
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_more_messages_than_can_fit_are_refused_before_they_are_looked_at():
    with pytest.raises(ContextLengthExceeded):
        read(messages=[{"role": "nobody"}] * 11)


def test_a_prompt_is_counted_without_a_length_and_as_a_turn_would_be_rendered():
    fields = {"messages": [HELLO], "system": "Be kind.", "tools": [TOOL]}
    counted = CountTokens().read(json.dumps(fields).encode(), 10)
    asked = read(**fields).request
    assert (counted.messages, counted.tools) == (asked.messages, asked.tools)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ],
)
def test_refusals_keep_their_status_and_have_the_apis_types(status, kind):
    told, body = Messages().refusal(ApiError(status, "some_code", "why", "tools[0]"))
    assert told == status
    assert json.loads(body) == {
        "type": "error",
        "error": {
            "type": kind,
            "message": "tools[0]: why",
            "details": {"error_code": "some_code", "param": "tools[0]"},
        },
    }
