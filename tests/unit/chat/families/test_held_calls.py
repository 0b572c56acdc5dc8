"""What a family frames arguments with, held by the engine: its tokens, the call, and the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from family_kit import TOOLS, summary, tokenizer

from rejoinder.chat.families.registry import choose_family
from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.engine.base import Constraint, Form
from rejoinder.engine.torch_engine.grammars import Grammars

SCHEMA = '{"type":"object","properties":{"s":{"enum":["a"]}},"required":["s"]}'
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
    grammars = Grammars(texts, texts.vocab_size)
    try:
        guide = await grammars.guide(Constraint(forms), 60.0)
        ids = texts.encode(f'{forms[-1].before}{{"s": "a"}}{forms[-1].after}')
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


@pytest.mark.parametrize("tool", ["function", "functions.f", "to", "final", "a/b", "é1", "7"])
@pytest.mark.parametrize(("name", "template"), FORMS)
def test_whatever_a_function_is_called_its_call_is_read(name, template, tool):
    texts = replace(tokenizer(name), chat_template=template)
    family = choose_family(name, texts, ChatTemplateRenderer(texts))
    frame = family.call_frame(tool, named=False)
    ids = texts.encode(f'{frame.before}{{"s": "a"}}{frame.after}')
    known = [{"type": "function", "function": {"name": tool}}]
    reader = family.reader([], known, (), family.begun_call([], None) or ())
    found = summary(reader.feed([*ids, *texts.eos_ids], last=True))
    assert found.calls == [(tool, '{"s": "a"}')]
