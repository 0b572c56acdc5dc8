"""What the chat dialect reads in a body, and how it refuses one."""

from __future__ import annotations

import json

import pytest

from rejoinder.errors import ContextLengthExceeded
from rejoinder.gateway.answer_format import AnswerFormat
from rejoinder.gateway.dialects.chat import ChatCompletions
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.gateway.tool_choice import WantedCall
from rejoinder.types import Message

HELLO = {"role": "user", "content": "Hi"}


@pytest.fixture
def read(tiny_tokenizer):
    """Read a body made of fields."""
    dialect = ChatCompletions(TokenTexts(tiny_tokenizer.tokenizer))

    def reading(**fields: object):
        return dialect.read(json.dumps({"messages": [HELLO], **fields}).encode(), 10)

    return reading


def test_a_body_that_asks_for_nothing_special_has_the_apis_defaults(read):
    assert read().request == TurnRequest(messages=(Message("user", "Hi"),))
    nulls = dict.fromkeys(("model", "n", "stop", "tools", "metadata", "temperature", "user"))
    assert read(**nulls).request == read().request


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"top_k": -1}, "top_k", 0),
        ({"max_tokens": 9, "max_completion_tokens": 8}, "max_tokens", 8),
        ({"stop": "x"}, "stop", ("x",)),
        ({"temperature": 0}, "temperature", 0.0),
        ({"logprobs": True}, "top_logprobs", 0),
        ({"tools": [{"type": "function"}]}, "tools", [{"type": "function"}]),
        ({"tools": [{"type": "function"}], "tool_choice": "none"}, "tools", ()),
        ({"logit_bias": {"7": 2}}, "logit_bias", {7: 2.0}),
    ],
)
def test_fields_become_the_request(read, fields, name, value):
    assert getattr(read(**fields).request, name) == value


def function(name: str) -> dict:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    ("mode", "names", "shown", "call"),
    [
        ("auto", ["clock"], ["clock"], None),
        ("auto", ["clock", "weather", "unknown"], ["weather", "clock"], None),
        ("required", ["clock", "weather"], ["weather", "clock"], WantedCall(None, several=True)),
        ("required", ["clock"], ["clock"], WantedCall("clock", several=True)),
        ("auto", [], [], None),
    ],
)
def test_a_choice_may_allow_some_of_the_tools(read, mode, names, shown, call):
    allowed = {"mode": mode, "tools": [function(name) for name in names]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    request = read(tools=[function("weather"), function("clock")], tool_choice=choice).request
    assert [tool["function"]["name"] for tool in request.tools] == shown
    assert request.wanted_call == call


@pytest.mark.parametrize(
    "allowed",
    [
        None,
        {"mode": "auto"},
        {"tools": []},
        {"mode": "none", "tools": []},
        {"mode": "required", "tools": []},
        {"mode": "required", "tools": [function("unknown")]},
    ],
)
def test_allowed_tools_that_say_nothing_possible_are_refused(read, allowed):
    with pytest.raises(ApiError) as caught:
        read(
            tools=[function("clock")],
            tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
        )
    assert (caught.value.status, caught.value.param) == (400, "tool_choice")


def test_fields_without_effect_are_named_and_unknown_ones_are_not(read):
    fields = {"parallel_tool_calls": False, "reasoning_effort": "low", "store": True}
    assert sorted(read(**fields, brand_new=1).ignored) == ["other", *fields]


@pytest.mark.parametrize(
    ("fields", "several"),
    [({}, True), ({"parallel_tool_calls": True}, True), ({"parallel_tool_calls": False}, False)],
)
def test_calls_that_are_asked_for_may_be_several(read, fields, several):
    asked = read(tools=[function("a"), function("b")], tool_choice="required", **fields)
    assert asked.request.wanted_call == WantedCall(None, several=several)
    assert asked.ignored == []
    named = read(tools=[function("a")], tool_choice=function("a"), **fields)
    assert named.request.wanted_call == WantedCall("a")


def test_more_messages_than_can_fit_are_refused_before_they_are_looked_at(read):
    with pytest.raises(ContextLengthExceeded):
        read(messages=[{"role": "nobody"}] * 11)


def test_a_bias_of_what_is_no_id_is_refused(read):
    with pytest.raises(ApiError) as caught:
        read(logit_bias={"word": 1})
    assert caught.value.param == "logit_bias"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, AnswerFormat('{"type":"object"}', False, "response_format")),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"b": 1, "a": 2}}},
            AnswerFormat('{"b":1,"a":2}', True, "response_format.json_schema"),
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": {}, "strict": True}},
            AnswerFormat("{}", False, "response_format.json_schema"),
        ),
    ],
)
def test_the_form_of_the_answer_is_read(read, asked, expected):
    assert read(response_format=asked).request.answer_format == expected


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"type": "grammar"}, "response_format"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "response_format.json_schema"),
        (
            {"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 70_000]}}},
            "response_format.json_schema",
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": []}},
            "response_format.json_schema.schema",
        ),
    ],
)
def test_another_form_and_one_without_or_with_a_huge_schema_are_refused(read, asked, param):
    with pytest.raises(ApiError) as caught:
        read(response_format=asked)
    assert (caught.value.status, caught.value.param) == (400, param)
