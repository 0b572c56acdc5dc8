"""The forms of a conversation that are tried where a chat template refuses it."""

from __future__ import annotations

import pytest

from rejoinder.chat.plainer import plainer_forms
from rejoinder.types import Message, ToolCall

CALL = Message("assistant", "", tool_calls=(ToolCall("c", "look", "{}"),))
RESULT = Message("tool", "rain", tool_call_id="c")


def said(*turns: str) -> tuple[Message, ...]:
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return tuple(Message(roles[turn[0]], turn[1:]) for turn in turns)


@pytest.mark.parametrize(
    ("messages", "forms"),
    [
        (said("u1", "a2", "u3"), []),
        (said("s1", "u2"), [said("u1\n\n2")]),
        (said("s1", "s2", "u3"), [said("s1\n\n2", "u3"), said("u1\n\n2\n\n3")]),
        (said("s1", "u2", "s3", "a4"), [said("s1", "u2\n\n3", "a4"), said("u1\n\n2\n\n3", "a4")]),
        (said("u1", "a2", "s3", "u4"), [said("u1", "a2", "u3\n\n4")] * 2),
        ((CALL, RESULT, RESULT, *said("s1")), [(CALL, RESULT, RESULT, *said("u1"))] * 2),
    ],
)
def test_system_texts_move_to_the_front_or_to_the_user(messages, forms):
    assert list(plainer_forms(messages)) == forms


def test_a_long_row_of_messages_is_joined():
    """All at once: one after the other, each copied all before it, 20 s for this row."""
    row = [Message("user", "x" * 240)] * 16_000
    (form, _) = plainer_forms([Message("system", "s"), *row])
    assert form[1].content == "\n\n".join(["x" * 240] * 16_000)
