"""What the dialect of responses reads in a body, and how it refuses one."""

from __future__ import annotations

import json

import pytest

from rejoinder.errors import ContextLengthExceeded
from rejoinder.gateway.answer_format import AnswerFormat
from rejoinder.gateway.dialects.responses import Responses
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.types import Message


@pytest.fixture
def read(tiny_tokenizer):
    """Read a body made of fields."""
    dialect = Responses(TokenTexts(tiny_tokenizer.tokenizer))

    def reading(**fields: object):
        return dialect.read(json.dumps({"input": "Hi", **fields}).encode(), 10)

    return reading


def test_a_body_that_asks_for_nothing_special_has_the_apis_defaults(read):
    request = read().request
    assert request == TurnRequest(messages=(Message("user", "Hi"),), tools=[], keep=True)
    names = ("model", "instructions", "store", "tools", "text", "include", "previous_response_id")
    assert read(**dict.fromkeys(names)).request == request


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"store": False}, "keep", False),
        ({"previous_response_id": "resp_1"}, "continues", "resp_1"),
        ({"max_output_tokens": 9}, "max_tokens", 9),
        ({"temperature": 0}, "temperature", 0.0),
        ({"top_logprobs": 3}, "top_logprobs", 3),
        ({"top_logprobs": 0}, "top_logprobs", None),
        ({"include": ["message.output_text.logprobs"]}, "top_logprobs", 0),
        ({"include": ["reasoning.encrypted_content"]}, "top_logprobs", None),
        ({"stream": True}, "stream", True),
    ],
)
def test_fields_become_the_request(read, fields, name, value):
    assert getattr(read(**fields).request, name) == value


def test_instructions_stand_first_and_are_known_as_this_requests_own(read):
    request = read(instructions="Be brief.").request
    assert request.messages == (Message("system", "Be brief."), Message("user", "Hi"))
    assert request.own_messages == 1


def test_fields_without_effect_are_named_and_unknown_ones_are_not(read):
    fields = {"reasoning": {"effort": "low"}, "truncation": "auto", "background": False}
    ignored = read(**fields, parallel_tool_calls=False, brand_new=1).ignored
    assert sorted(ignored) == [
        "background", "other", "parallel_tool_calls", "reasoning", "truncation",
    ]  # fmt: skip


def test_tools_that_are_left_out_are_counted(read):
    function = {"type": "function", "name": "clock"}
    assert read(tools=[function, {"type": "web_search"}]).ignored == ["tools"]
    assert read(tools=[function]).ignored == []


def test_what_is_to_be_included_and_cannot_be_is_counted(read):
    assert read(include=["reasoning.encrypted_content"]).ignored == ["include"]
    assert read(include=["message.output_text.logprobs"]).ignored == []


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, AnswerFormat('{"type":"object"}', False, "text.format")),
        (
            {"type": "json_schema", "name": "x", "schema": {"b": 1, "a": 2}, "strict": True},
            AnswerFormat('{"b":1,"a":2}', False, "text.format"),
        ),
    ],
)
def test_the_form_of_the_answer_is_read(read, asked, expected):
    assert read(text={"format": asked}).request.answer_format == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ],
)
def test_what_would_be_another_request_is_refused(read, fields, param):
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_more_items_than_can_fit_are_refused_before_they_are_looked_at(read):
    with pytest.raises(ContextLengthExceeded):
        read(input=[{"type": "nothing"}] * 11)
