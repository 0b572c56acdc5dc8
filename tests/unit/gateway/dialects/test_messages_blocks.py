"""Content blocks in the normal form, and arguments on their way out and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.chat.history import History
from rejoinder.chat.messages import BadMessages, normalise
from rejoinder.gateway.dialects.messages_blocks import read_messages, tool_input
from rejoinder.types import Message, ToolCall


def text(words: str) -> dict:
    return {"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}


def result(content: object = "rain", **more: object) -> dict:
    return {"type": "tool_result", "tool_use_id": "c1", "content": content, **more}


def used(input_: object, name: str = "weather") -> dict:
    return {"type": "tool_use", "id": "c1", "name": name, "input": input_}


def user(*blocks: dict) -> dict:
    return {"role": "user", "content": list(blocks)}


def bot(*blocks: dict) -> dict:
    return {"role": "assistant", "content": list(blocks)}


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("Be kind.", "Be kind."),
        ([text("Be "), text("kind.")], "Be kind."),
        (None, None),
        ([], None),
    ],
)
def test_system_text_comes_first(system, words):
    made = read_messages(system, [user(text("Hi"))])
    expected = [] if words is None else [Message("system", words)]
    assert made == (*expected, Message("user", "Hi"))


def test_tool_results_are_messages_of_their_own_in_the_order_in_which_they_stand():
    made = read_messages(
        None,
        [user(text("a"), result(), result([text("x"), text("y")]), text("b"), text("c"))],
    )
    assert made == (
        Message("user", "a"),
        Message("tool", "rain", tool_call_id="c1"),
        Message("tool", "xy", tool_call_id="c1"),
        Message("user", "bc"),
    )


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (result("no such city", is_error=True), "Error: no such city"),
        (result("ERROR 5", is_error=True), "ERROR 5"),
        (result("fine", is_error=False), "fine"),
        ({"type": "tool_result", "tool_use_id": "c1"}, ""),
    ],
)
def test_a_failed_tool_says_so_once(block, content):
    assert read_messages(None, [user(block)])[0].content == content


def test_references_to_tools_in_a_result_are_lines_of_text():
    references = [{"type": "tool_reference", "tool_name": name} for name in ("clock", "weather")]
    made = read_messages(None, [user(result(references))])
    assert made[0].content == "Tool loaded: clock\nTool loaded: weather\n"


def test_an_answer_is_text_calls_and_reasoning():
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    hidden = {"type": "redacted_thinking", "data": "x"}
    (answer, _) = read_messages(
        None, [bot(thought, hidden, text("See."), used({"city": "Zürich"})), user(result())]
    )
    call = ToolCall("c1", "weather", '{"city": "Zürich"}')
    assert answer == Message("assistant", "See.", tool_calls=(call,), reasoning="Hm.")


def test_an_answer_in_several_messages_is_one():
    made = read_messages(None, [bot(text("a")), bot(used({})), bot(text("b")), user(result())])
    assert made[0] == Message("assistant", "ab", tool_calls=(ToolCall("c1", "weather", "{}"),))
    assert len(made) == 2


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"role": "tool", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([user({"type": "image", "source": {}})], "messages[0].content[0]"),
        ([user(result([{"type": "image"}]))], "messages[0].content[0].content[0]"),
        ([user(result([{"type": "tool_reference"}]))], "messages[0].content[0].content[0]"),
        ([user({"type": "tool_reference", "tool_name": "x"})], "messages[0].content[0]"),
        ([user({"type": "text"})], "messages[0].content[0]"),
        ([user({"type": "tool_result", "content": "x"})], "messages[0].content[0]"),
        ([user(used({}))], "messages[0].content[0]"),
        ([bot(result()), user(text("x"))], "messages[0].content[0]"),
        ([bot({"type": "tool_use", "id": "c1"}), user(text("x"))], "messages[0].content[0]"),
        ([user(text("x")), bot(text("The answer is ("))], "messages[1]"),
    ],
)
def test_what_is_not_served_is_named(messages, param):
    with pytest.raises(BadMessages) as caught:
        read_messages(None, messages)
    assert caught.value.param == param


def test_a_conversation_has_the_same_history_in_both_dialects():
    function = {"name": "weather", "arguments": '{"city":"Zürich"}'}
    chat = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "function": function}]},
        {"role": "tool", "tool_call_id": "x", "content": "rain"},
        {"role": "assistant", "content": "Rain."},
        {"role": "user", "content": "Thanks"},
    ]
    blocks = [
        {"role": "user", "content": "Weather?"},
        bot(text("Let me see."), used({"city": "Zürich"})),
        user(result()),
        bot(text("Rain.")),
        user(text("Thanks")),
    ]
    assert (
        History(read_messages("Be kind.", blocks)).chains[1:] == History(normalise(chat)).chains[1:]
    )


@pytest.mark.parametrize(
    ("arguments", "given_out"),
    [
        ('{"a":  1}', b'{"a":  1}'),
        ('{"n": 123456789012345678901234567890}', b'{"n": 123456789012345678901234567890}'),
        ('{"a": "\\ud83d"}', b'{"a": "\\ud83d"}'),
        ("", b"{}"),
        ('{"a": ', b'{"INVALID_JSON":"{\\"a\\": "}'),
        ("[1]", b'{"INVALID_JSON":"[1]"}'),
        ('{"a": NaN}', b'{"INVALID_JSON":"{\\"a\\": NaN}"}'),
    ],
)
def test_arguments_leave_as_the_model_wrote_them_or_as_text(arguments, given_out):
    assert tool_input(arguments) == given_out


_FIELDS = ("type", "text", "content", "id", "name", "input", "tool_use_id", "thinking")
_KINDS = st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_FIELDS), inner | _KINDS, max_size=4)
    ),
    max_leaves=12,
)


@given(
    st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": _VALUES}),
        max_size=3,
    )
)
def test_whatever_a_client_sends_is_read_or_refused(messages):
    try:
        made = read_messages(None, messages)
    except BadMessages:
        return
    assert made[-1].role != "assistant"
    assert History(made).chains


@given(
    st.text() | st.dictionaries(st.text(), st.none() | st.text() | st.integers()).map(json.dumps)
)
def test_arguments_come_back_as_they_went_out_for_linking(arguments):
    """Whatever a model wrote, its answer is recognised by what a client was given."""
    given_out = json.loads(tool_input(arguments))
    back = read_messages(None, [bot(used(given_out)), user(result())])
    call = ToolCall("c1", "weather", arguments)
    sent = (Message("assistant", "", tool_calls=(call,)), back[1])
    assert History(back).chains == History(sent).chains
