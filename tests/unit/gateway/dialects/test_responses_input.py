"""Input items of responses: what they become, and what is refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rejoinder.chat.messages import BadMessages
from rejoinder.gateway.dialects.responses_input import read_input
from rejoinder.types import Message, ToolCall

REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm."}],
}
SAID = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "weather",
    "arguments": '{"city": "Bern"}',
    "status": "completed",
}
TOOL_CALL = ToolCall("call_1", "weather", '{"city": "Bern"}')


def output(value: object) -> dict:
    return {"type": "function_call_output", "call_id": "call_1", "output": value}


def test_a_string_is_what_a_user_says():
    assert read_input("Hi") == (Message("user", "Hi"),)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"role": "user", "content": "Hi"}, Message("user", "Hi")),
        ({"role": "developer", "content": "Be brief."}, Message("system", "Be brief.")),
        ({"role": "assistant", "content": "Hello."}, Message("assistant", "Hello.")),
        (
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "a"},
                    {"type": "input_text", "text": "b"},
                ],
            },
            Message("user", "ab"),
        ),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            Message("assistant", "No."),
        ),
        (output("rain"), Message("tool", "rain", tool_call_id="call_1")),
        (
            output([{"type": "input_text", "text": "rain"}]),
            Message("tool", "rain", tool_call_id="call_1"),
        ),
        (CALL, Message("assistant", "", tool_calls=(TOOL_CALL,))),
        (
            {**CALL, "namespace": "mcp__sky"},
            Message("assistant", "", tool_calls=(replace(TOOL_CALL, name="mcp__sky__weather"),)),
        ),
        (
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]},
            Message("assistant", "", reasoning="Hm."),
        ),
    ],
)
def test_an_item_becomes_a_message(item, message):
    assert read_input([item]) == (message,)


def test_the_items_of_one_answer_become_one_message_again():
    asked = {"role": "user", "content": "Weather?"}
    items = [asked, REASONING, SAID, CALL, {**CALL, "call_id": "call_2"}, output("rain")]
    answer = Message(
        "assistant",
        "Let me see.",
        tool_calls=(TOOL_CALL, ToolCall("call_2", "weather", '{"city": "Bern"}')),
        reasoning="Hm.",
    )
    assert read_input(items)[1] == answer
    assert len(read_input(items)) == 3


def test_text_of_one_answer_in_several_items_is_joined():
    again = {**SAID, "id": "msg_2", "content": [{"type": "output_text", "text": " Done."}]}
    assert read_input([SAID, CALL, again]) == (
        Message("assistant", "Let me see. Done.", tool_calls=(TOOL_CALL,)),
    )


def test_messages_written_by_hand_stay_apart():
    items = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert [message.content for message in read_input(items)] == ["a", "b"]


def test_texts_around_a_call_are_one_answer_also_where_a_client_drops_their_ids():
    """Guards against an answer that is not known again: its reply would teach nothing."""
    items = [{"role": "assistant", "content": "a"}, CALL, {"role": "assistant", "content": "b"}]
    assert read_input(items) == (Message("assistant", "ab", tool_calls=(TOOL_CALL,)),)


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([], "input"),
        (["Hi"], "input[0]"),
        ([{"role": "tool", "content": "x"}], "input[0].role"),
        ([{"type": "message", "content": "x"}], "input[0].role"),
        ([{"role": ["user"], "content": "x"}], "input[0].role"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0]"),
        ([{"role": "user", "content": 7}], "input[0].content"),
        ([{"id": "msg_1"}], "input[0]"),
        ([{"type": "item_reference", "id": "msg_1"}], "input[0]"),
        ([{"type": "web_search_call", "id": "ws_1"}], "input[0]"),
        ([{"type": ["message"]}], "input[0]"),
        ([{**CALL, "call_id": None}], "input[0]"),
        ([{**CALL, "namespace": 7}], "input[0].namespace"),
        ([{"type": "function_call_output", "output": "x"}], "input[0].call_id"),
        ([output(7)], "input[0].output"),
        ([{**REASONING, "content": [{"type": "output_text"}]}], "input[0].content[0]"),
    ],
)
def test_what_cannot_be_read_is_named(items, param):
    with pytest.raises(BadMessages) as caught:
        read_input(items)
    assert caught.value.param == param
