"""Messages as clients write them become one form."""

from __future__ import annotations

import pytest

from rejoinder.chat.messages import BadMessages, for_template, normalise
from rejoinder.types import Message, ToolCall


def one(**raw: object) -> Message:
    return normalise([raw])[0]


@pytest.mark.parametrize(
    ("content", "flat"),
    [
        ("hi", "hi"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "refusal", "refusal": "no"}], "no"),
    ],
)
def test_content_as_text_parts_or_null_is_flattened_without_separator(content, flat):
    assert one(role="user", content=content).content == flat


def test_an_assistant_message_with_parts_and_tool_calls_keeps_both():
    message = one(
        role="assistant",
        content=[{"type": "text", "text": "let me look"}],
        tool_calls=[{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    )
    assert message.content == "let me look"
    assert message.tool_calls == (ToolCall("c1", "f", "{}"),)


def test_developer_is_system_and_function_is_tool():
    assert one(role="developer", content="x").role == "system"
    assert one(role="function", name="f", content="x").role == "tool"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (["hi"], "messages[0]"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 3}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        (
            [
                {"role": "user", "content": "x"},
                {"role": "user", "content": [{"type": "image_url"}]},
            ],
            "messages[1].content[0]",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
        ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [{"id": "a"}]}], "messages[0].tool_calls[0]"),
        ([{"role": "user", "content": "x", "name": 5}], "messages[0].name"),
    ],
)
def test_faults_name_the_part_that_has_them(messages, param):
    with pytest.raises(BadMessages) as caught:
        normalise(messages)
    assert caught.value.param == param


def test_tool_arguments_become_an_object_for_the_template_only_where_they_are_one():
    def rendered(arguments: str) -> object:
        call = ToolCall("c", "f", arguments)
        made = for_template(Message("assistant", "", tool_calls=(call,)))
        return made["tool_calls"][0]["function"]["arguments"]

    assert rendered('{"city": "Paris"}') == {"city": "Paris"}
    assert rendered("{not json") == "{not json"
    assert rendered("[1]") == "[1]"


def test_arguments_sent_as_an_object_and_the_old_function_call_form_are_understood():
    call = {"function": {"name": "f", "arguments": {"é": 1}}}
    assert one(role="assistant", tool_calls=[call]).tool_calls == (ToolCall("", "f", '{"é": 1}'),)
    old = one(role="assistant", function_call={"name": "f", "arguments": "{}"})
    assert old.tool_calls == (ToolCall("", "f", "{}"),)


def test_reasoning_goes_to_the_template_and_never_into_content():
    message = one(role="assistant", content="4", reasoning_content="2 and 2")
    made = for_template(message)
    assert message.content == "4"
    assert made["reasoning_content"] == "2 and 2"
    assert "reasoning_content" not in for_template(Message("assistant", "4"))
