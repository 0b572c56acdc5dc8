"""What holds for every family and every text: pieces do not matter, and nothing is lost."""

from __future__ import annotations

import re

import pytest
from family_kit import (
    FAMILIES,
    PARSED,
    TOOLS,
    dump,
    family_of,
    letters,
    read,
    read_ids,
    said,
    summary,
    tokenizer,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from rejoinder.chat.families.events import ArgumentsDelta, CallBegun, CallEnded
from rejoinder.chat.families.registry import FORMATS

PAYLOAD = "☃ßΩ🌊한"
"""Letters that no format has: each must come out again, in its order."""
_SYNTAX = (
    '{"name": "f", "arguments": {', '{"name": "f", "parameters": {"s": "', '{"arguments": {',
    '}, "name": "f"}', '{"name": "\\ud83d", "arguments": {', "\\ud83d",
    '"name"', '"', "\\", "{", "}", "}}", "[", "]", ", ", ": ", "; ", "\n", " ",
    "function", "f", "\n```json\n", "```", "<function=f>", "</function>", "<parameter=s>\n",
    "\n</parameter>", "assistant", "analysis", "final", "commentary", " to=functions.f", "json", "",
    "<think", "<tool", "[TOOL_", "<eos>",
)  # fmt: skip


@st.composite
def hostile(draw: st.DrawFn, family: str) -> str:
    """Draw a text of the family's markers, pieces of its syntax, and letters."""
    form = FORMATS[family]
    pieces = st.sampled_from([*form.markers, *form.call_markers, *_SYNTAX])
    payload = st.text(PAYLOAD, min_size=1, max_size=2)
    return "".join(draw(st.lists(pieces | payload, max_size=30)))


CUTS = st.lists(st.integers(0, 500), max_size=40)
EACH_FAMILY = pytest.mark.parametrize("family", FAMILIES)
PROMPTS = st.sampled_from(["", "<think>\n", "[THINK]"])


def _payload(text: str) -> str:
    return re.sub(f"[^{PAYLOAD}]", "", text)


@EACH_FAMILY
@settings(deadline=None, max_examples=60)
@given(st.data(), CUTS, st.booleans(), PROMPTS)
def test_any_split_of_any_text_gives_the_same_and_loses_no_letter(
    family, data, cuts, with_tokens, prompt
):
    text = data.draw(hostile(family))
    whole = read(family, text, prompt=prompt, with_tokens=with_tokens)
    pieces = read(family, text, cuts=cuts, prompt=prompt, with_tokens=with_tokens)
    assert pieces == whole
    assert _payload(said(whole)) == _payload(text)


@EACH_FAMILY
@settings(deadline=None, max_examples=60)
@given(st.data(), CUTS, st.booleans())
def test_stop_strings_cut_alike_wherever_the_pieces_end(family, data, cuts, with_tokens):
    text = data.draw(hostile(family))
    stop = data.draw(st.lists(st.sampled_from(["☃", "\n", '"f"', "call", ">"]), max_size=3))
    whole = read(family, text, stop=stop, with_tokens=with_tokens)
    pieces = read(family, text, stop=stop, cuts=cuts, with_tokens=with_tokens)
    assert pieces == whole
    assert "☃" not in said(whole) or "☃" not in stop


@EACH_FAMILY
@settings(deadline=None, max_examples=60)
@given(st.data(), CUTS)
def test_any_ids_are_read_even_where_they_are_no_text(family, data, cuts):
    size = tokenizer(family).vocab_size
    ids = data.draw(st.lists(st.integers(0, size - 1), max_size=40))
    assert read_ids(family, ids, cuts=cuts) == read_ids(family, ids)


@EACH_FAMILY
@settings(deadline=None, max_examples=60)
@given(st.text(max_size=60), CUTS)
def test_text_without_markers_is_content_to_the_letter(family, text, cuts):
    prefix = "Say: "  # a bare call must begin with a bracket
    found = read_ids(family, letters(prefix + text), cuts=cuts)
    assert (found.content, found.calls, found.reasoning) == (prefix + text, [], None)


@pytest.mark.parametrize("family", PARSED)
def test_the_letters_of_a_token_are_no_marker(family):
    form = FORMATS[family]
    text = "x" + "".join((*form.markers, *form.call_markers))
    assert read_ids(family, letters(text)).content == text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
_ARGUMENTS = st.dictionaries(st.text(max_size=6), _JSON, max_size=4)
_WRITERS = {
    "qwen": lambda a: f'<tool_call>\n{{"name": "f", "arguments": {a}}}\n</tool_call>',
    "llama": lambda a: f'<|python_tag|>{{"name": "f", "parameters": {a}}}',
    "mistral": lambda a: f'[TOOL_CALLS][{{"name": "f", "arguments": {a}}}]',
    "deepseek": lambda a: (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        f"{a}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "gpt-oss": lambda a: (
        f"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{a}<|call|>"
    ),
}


@pytest.mark.parametrize("family", sorted(_WRITERS))
@settings(deadline=None, max_examples=60)
@given(_ARGUMENTS, CUTS)
def test_arguments_come_out_as_they_were_written(family, arguments, cuts):
    written = dump(arguments)
    assert read(family, _WRITERS[family](written), cuts=cuts).calls == [("f", written)]


@pytest.mark.parametrize("family", sorted(_WRITERS))
def test_arguments_arrive_while_they_are_sampled(family):
    """A client that shows a file as it is written must not wait for its end."""
    text = _WRITERS[family](dump({"s": "a long file"}))
    ids = tokenizer(family).encode(text.partition("file")[0])
    reader = family_of(family).reader([], TOOLS, ())
    events = reader.feed(ids)
    assert [type(event) for event in events] == [CallBegun, ArgumentsDelta]
    assert events[1].text == '{"s": "a long '
    rest = reader.feed([], last=True)
    assert rest == [CallEnded(0)]
    assert summary([*events, *rest]).calls == [("f", '{"s": "a long ')]


@pytest.mark.parametrize("family", PARSED)
def test_text_is_given_out_as_soon_as_nothing_can_change_it(family):
    """Held back: half a character, line breaks before a marker, the beginning of a marker."""
    reader = family_of(family, with_tokens=False).reader([], TOOLS, ())
    ids = tokenizer("generic").encode("Aé\nb<[t")
    given_out = [said(summary(reader.feed([id_]))) for id_ in ids]
    assert given_out[:5] == ["A", "", "é", "", "\nb"]
    assert "".join(given_out) + said(summary(reader.feed([], last=True))) == "Aé\nb<[t"


def test_a_model_without_tool_calls_gives_out_all_text_at_once():
    reader = family_of("generic").reader([], TOOLS, ())
    ids = tokenizer("generic").encode("Aé\n<th")
    given_out = [said(summary(reader.feed([id_]))) for id_ in ids]
    assert given_out == ["A", "", "é", "\n", "<", "t", "h"]


def test_a_name_that_cannot_be_written_as_text_is_no_name():
    """Half a surrogate pair would fail wherever the call is encoded."""
    text = '<tool_call>{"name": "\\ud83d", "arguments": {}}</tool_call>'
    assert read("qwen", text).content == text


def test_a_stop_string_inside_a_call_ends_it_there():
    found = read("qwen", '<tool_call>{"name": "f", "arguments": {"s": "a END b"}}', stop=["END"])
    assert found.calls == [("f", '{"s": "a ')]


def test_a_stop_string_may_be_a_marker():
    text = '<tool_call>{"name": "f", "arguments": {}}</tool_call> and more'
    found = read("qwen", text, stop=["</tool_call>"])
    assert (found.calls, found.content) == ([("f", "{}")], "")


def test_ids_of_mistral_calls_have_the_form_that_its_template_takes():
    reader = family_of("mistral").reader([], TOOLS, ())
    events = reader.feed(
        tokenizer("mistral").encode("[TOOL_CALLS]f{}[TOOL_CALLS]f[CALL_ID]a1[ARGS]{}")
    )
    made, given_by_model = (event.id for event in events if isinstance(event, CallBegun))
    assert re.fullmatch("[A-Za-z0-9]{9}", made)
    assert given_by_model == "a1"
