"""Calls that a prompt has begun: the model writes the rest, and all of it is read as one call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from family_kit import FAMILIES, PARSED, TOOLS, Read, family_of, summary, tokenizer

from rejoinder.chat.families.registry import choose_family
from rejoinder.chat.renderer import ChatTemplateRenderer

CODER = "{# <function= #}"
FENCED = "{# ```json #}"
ARGS = "{# [ARGS] #}"
# What a model writes after the beginning: family, template, with a name and without, and the rest.
RESTS = [
    ("qwen", "", "f", ' {"s": "a"}}\n</tool_call>'),
    ("qwen", "", None, ' "f", "arguments": {"s": "a"}}\n</tool_call>'),
    ("qwen", CODER, "f", "<parameter=s>\na\n</parameter>\n</function>\n</tool_call>"),
    ("qwen", CODER, None, "f>\n<parameter=s>\na\n</parameter>\n</function>\n</tool_call>"),
    ("llama", "", "f", ' {"s": "a"}}'),
    ("llama", "", None, ' "f", "parameters": {"s": "a"}}'),
    ("mistral", "", "f", ' {"s": "a"}}]'),
    ("mistral", "", None, '[{"name": "f", "arguments": {"s": "a"}}]'),
    ("mistral", ARGS, "f", '{"s": "a"}'),
    ("mistral", ARGS, None, 'f[ARGS]{"s": "a"}'),
    ("glm", "", "f", "<arg_key>s</arg_key>\n<arg_value>a</arg_value>\n</tool_call>"),
    ("glm", "", None, "f\n<arg_key>s</arg_key>\n<arg_value>a</arg_value>\n</tool_call>"),
    ("deepseek", "", "f", '{"s": "a"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'),
    ("deepseek", "", None, 'f<｜tool▁sep｜>{"s": "a"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'),
    ("deepseek", FENCED, "f", '{"s": "a"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'),
    (
        "deepseek",
        FENCED,
        None,
        'f\n```json\n{"s": "a"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    ("gpt-oss", "", "f", '{"s": "a"}<|call|>'),
    ("gpt-oss", "", None, '.f<|constrain|>json<|message|>{"s": "a"}<|call|>'),
]

PLAIN = [("qwen", CODER), ("glm", "")]
"""Their values stand without quotes."""


def continued(name: str, begun: list[int], rest: str, stop: tuple[str, ...] = ()) -> Read:
    """Read an answer that goes on after its beginning."""
    reader = family_of(name).reader([], TOOLS, stop, begun)
    events = reader.feed(tokenizer(name).encode(rest), last=True)
    return summary(events)


def begun_call(name: str, template: str, function: str | None, prompt: str = "") -> list[int]:
    made = replace(tokenizer(name), chat_template=template)
    family = choose_family(name, made, ChatTemplateRenderer(made))
    ids = family.begun_call(made.encode(prompt), function)
    assert ids is not None
    return ids


@pytest.mark.parametrize(("name", "template", "function", "rest"), RESTS)
def test_a_begun_call_and_what_the_model_adds_are_one_call(name, template, function, rest):
    begun = begun_call(name, template, function)
    whole = continued(name, begun, rest)
    assert [call for call, _ in whole.calls] == ["f"]
    assert whole.calls[0][1].replace(" ", "") == '{"s":"a"}'
    assert (whole.content, whole.reasoning) == ("", None)


def test_every_family_with_calls_can_begin_one():
    assert {name for name, *_ in RESTS} == set(PARSED)
    assert [name for name in FAMILIES if family_of(name).begun_call([], "f") is None] == ["generic"]


@pytest.mark.parametrize(
    ("prompt", "closed"), [("<think>\n", "\n</think>\n\n"), ("<think>", "</think>"), ("", "")]
)
def test_thoughts_that_the_prompt_has_opened_are_closed_before_the_call(prompt, closed):
    text = tokenizer("qwen").decode(begun_call("qwen", "", "f", prompt), skip_special_tokens=False)
    assert text == f'{closed}<tool_call>\n{{"name": "f", "arguments":'


@pytest.mark.parametrize("named", [True, False], ids=["named", "any"])
@pytest.mark.parametrize(
    ("name", "template"),
    dict.fromkeys(
        (name, template) for name, template, *_ in RESTS if (name, template) not in PLAIN
    ),
)
def test_what_frames_the_arguments_goes_on_from_the_beginning_and_is_read_as_one_call(
    name, template, named
):
    texts = replace(tokenizer(name), chat_template=template)
    family = choose_family(name, texts, ChatTemplateRenderer(texts))
    begun = family.begun_call([], "f" if named else None) or []
    frame = family.call_frame("f", named=named)
    reader = family.reader([], TOOLS, (), begun)
    said = frame.before + '{"s": "</a>"}' + frame.after + frame.end
    found = summary(reader.feed(texts.encode(said), last=True))
    assert (found.content, found.reasoning) == ("", None)
    assert found.calls == [("f", '{"s": "</a>"}')]


@pytest.mark.parametrize(("name", "template"), [*PLAIN, ("qwen", ""), ("deepseek", "")])
def test_only_families_that_write_no_json_have_fields(name, template):
    texts = replace(tokenizer(name), chat_template=template)
    frame = choose_family(name, texts, ChatTemplateRenderer(texts)).call_frame("f", named=True)
    assert (frame.fields is not None) == ((name, template) in PLAIN)


def test_a_family_without_calls_frames_none():
    assert family_of("generic").call_frame("f", named=True) is None


SHOWS = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }} {% endfor %}"
SHOWS += "{% endfor %}"
FIRST = SHOWS.replace("m.tool_calls or []", "(m.tool_calls or [])[:1]")
REFUSES = "{% for m in messages %}{% if m.tool_calls and m.tool_calls|length != 1 %}"
REFUSES += "{{ raise_exception('one call at once') }}{% endif %}{% endfor %}" + SHOWS


@pytest.mark.parametrize(
    ("name", "template", "several"),
    [
        ("qwen", SHOWS, True),
        ("llama", SHOWS, True),
        ("llama", REFUSES, False),
        ("qwen", FIRST, False),
        ("qwen", "", False),
        ("gpt-oss", SHOWS, False),
    ],
)
def test_several_calls_are_framed_where_the_template_can_show_them(name, template, several):
    texts = replace(tokenizer(name), chat_template=template)
    family = choose_family(name, texts, ChatTemplateRenderer(texts))
    assert (family.call_frame("f", named=True, several=True).again is not None) is several
    assert family.call_frame("f", named=True).again is None


def test_nothing_stops_in_what_the_model_did_not_write():
    begun = begun_call("qwen", "", "f")
    found = continued("qwen", begun, ' {"s": "stop here"}}\n</tool_call>', stop=("stop", "name"))
    assert found.calls[0][1].strip() == '{"s": "'


@pytest.mark.parametrize(
    ("name", "prompt", "expected"),
    [
        ("generic", "<think>\n", ""),
        ("qwen", "<think>\n", "\n</think>\n\n"),
        ("qwen", "", ""),
        ("gpt-oss", "", "<|channel|>final<|message|>"),
    ],
)
def test_content_that_is_begun_is_read_as_content_from_its_first_id_on(name, prompt, expected):
    family, texts = family_of(name), tokenizer(name)
    begun = family.begun_content(texts.encode(prompt))
    assert texts.decode(begun, skip_special_tokens=False) == expected
    reader = family.reader(texts.encode(prompt), TOOLS, (), begun)
    found = summary(reader.feed(texts.encode('{"a": 1}'), last=True))
    assert (found.content.strip(), (found.reasoning or "").strip(), found.calls) == (
        '{"a": 1}',
        "",
        [],
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("generic", None),
        ("qwen", "<tool_call>"),
        ("llama", None),
        ("mistral", "[TOOL_CALLS]"),
        ("glm", "<tool_call>"),
        ("deepseek", "<｜tool▁calls▁begin｜>"),
        ("gpt-oss", None),
    ],
)
def test_a_call_is_known_by_its_first_id_where_the_family_has_a_marker_for_it(name, expected):
    texts = tokenizer(name)
    ids = [] if expected is None else [texts.token_to_id(expected)]
    assert family_of(name).call_openers() == ids


def test_without_a_token_of_its_own_the_marker_of_a_call_tells_nothing():
    made = tokenizer("qwen", with_tokens=False)
    family = choose_family("qwen", made, ChatTemplateRenderer(made))
    assert family.call_openers() == []
