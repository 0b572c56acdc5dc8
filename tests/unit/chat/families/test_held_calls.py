"""What a family frames arguments with, held by the engine: its tokens, the call, and the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from family_kit import TOOLS, family_of, read, summary, tokenizer

from rejoinder.chat.families.base import CallsOnly
from rejoinder.chat.families.registry import choose_family
from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.engine.base import Constraint, Form
from rejoinder.engine.torch_engine.grammars import Grammars

SCHEMA = '{"type":"object","properties":{"s":{"enum":["a"]}},"required":["s"]}'
SECTION = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
FORMS = [
    ("qwen", ""),
    ("llama", ""),
    ("mistral", ""),
    ("mistral", "{# [ARGS] #}"),
    ("deepseek", ""),
    ("deepseek", "{# ```json #}"),
    ("gpt-oss", ""),
]


@pytest.mark.parametrize("named", [True, False], ids=["named", "any"])
@pytest.mark.parametrize(("name", "template"), FORMS)
async def test_a_held_call_is_whole_and_read_as_one_call(name, template, named):
    texts = replace(tokenizer(name), chat_template=template)
    family = choose_family(name, texts, ChatTemplateRenderer(texts))
    tools = ["f"] if named else ["weather", "f"]
    frames = [family.call_frame(tool, named=named) for tool in tools]
    forms = [Form(SCHEMA, before=frame.before, after=frame.after) for frame in frames]
    end = frames[-1].end
    grammars = Grammars(texts, texts.vocab_size)
    try:
        guide = await grammars.guide(Constraint(forms, end=end), 60.0)
        ids = texts.encode(f'{forms[-1].before}{{"s": "a"}}{forms[-1].after}{end}')
        for id_ in (*ids, texts.eos_ids[0]):
            assert guide.arrived(30.0)
            assert not guide.forbidden[id_], texts.decode([id_], skip_special_tokens=False)
            guide.advance(id_)
    finally:
        grammars.close()
    reader = family.reader([], TOOLS, (), family.begun_call([], "f" if named else None) or ())
    found = summary(reader.feed([*ids, *texts.eos_ids], last=True))
    assert found.calls == [("f", '{"s": "a"}')]
    assert (found.content, found.reasoning) == ("", None)


def test_a_call_of_gpt_oss_that_is_cut_before_its_arguments_is_none():
    """It was told as one with ``{}``, which its client would have run."""
    header = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
    assert read("gpt-oss", header).calls == []
    assert read("gpt-oss", header).content == header
    assert read("gpt-oss", header + "<|call|>").calls == [("f", "{}")]
    assert read("gpt-oss", header + '{"s').calls == [("f", '{"s')]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "f"'),
        ("deepseek", SECTION + "{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
        ("glm", "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"),
        ("gpt-oss", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}"),
    ],
)
@pytest.mark.parametrize("with_tokens", [True, False], ids=["tokens", "letters"])
def test_a_held_answer_that_is_cut_anywhere_has_no_content(name, text, with_tokens):
    ids = tokenizer(name, with_tokens=with_tokens).encode(text)
    for size in range(len(ids)):
        reader = CallsOnly(family_of(name, with_tokens=with_tokens).reader([], TOOLS, ()))
        found = summary(reader.feed(ids[:size], last=True))
        assert found.content == ""
        assert {called for called, _ in found.calls} <= {"f"}


def test_a_call_whose_values_have_no_quotes_is_told_when_it_is_whole():
    text = "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"
    ids = tokenizer("glm").encode(text)
    for size, calls in ((len(ids) - 1, []), (len(ids), [("f", '{"s": "x"}')])):
        reader = CallsOnly(family_of("glm").reader([], TOOLS, ()))
        assert summary(reader.feed(ids[:size], last=True)).calls == calls


def test_a_marker_in_a_json_string_ends_no_value_that_is_json():
    types = {"properties": {"s": {"type": "string"}, "l": {"type": "array"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": types}}]
    said = '["</parameter>\\n<parameter=x>"]'
    text = f"<tool_call><function=f><parameter=l>\n{said}\n</parameter></function></tool_call>"
    assert read("qwen", text, tools=tools).calls == [("f", f'{{"l": {said}}}')]
    # What is no JSON ends at the first.
    broken = text.replace('"]', "")
    assert [called for called, _ in read("qwen", broken, tools=tools).calls] == ["f"]


@pytest.mark.parametrize("tool", ["function", "functions.f", "to", "final", "a/b", "é1", "7"])
@pytest.mark.parametrize(("name", "template"), FORMS)
def test_whatever_a_function_is_called_its_call_is_read(name, template, tool):
    texts = replace(tokenizer(name), chat_template=template)
    family = choose_family(name, texts, ChatTemplateRenderer(texts))
    frame = family.call_frame(tool, named=False)
    ids = texts.encode(f'{frame.before}{{"s": "a"}}{frame.after}{frame.end}')
    known = [{"type": "function", "function": {"name": tool}}]
    reader = family.reader([], known, (), family.begun_call([], None) or ())
    found = summary(reader.feed([*ids, *texts.eos_ids], last=True))
    assert found.calls == [(tool, '{"s": "a"}')]
