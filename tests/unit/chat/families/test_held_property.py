"""Whatever the engine lets through of a held answer is read as calls that fit their schemas."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from family_kit import summary, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from rejoinder.chat.families.base import CallsOnly, ChatFamily
from rejoinder.chat.families.registry import choose_family
from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.engine.base import Constraint, Form
from rejoinder.engine.torch_engine import grammars as module
from rejoinder.engine.torch_engine.grammar_check import faults_of
from rejoinder.engine.torch_engine.grammars import Grammars
from rejoinder.engine.torch_engine.guide import Guide
from rejoinder.errors import ConstraintRefused
from rejoinder.models.tokenizer import ModelTokenizer

SHOWS = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}"
SHOWS += "{% endfor %}"
FORMS = [
    ("qwen", "{# <function= #}", True),
    ("qwen", "{# <function= #}", False),
    ("glm", "", True),
    ("glm", "", False),
    ("qwen", "", True),
    ("qwen", "", False),
    ("llama", "", True),
    ("mistral", "", True),
    ("mistral", "{# [ARGS] #}", True),
    ("deepseek", "", True),
    ("deepseek", "{# ```json #}", True),
    ("deepseek", "", False),
    ("gpt-oss", "", True),
]
MOST = 700
"""Tokens of an answer; some are cut."""
FAVOURITES = '<>/"{}[]\\\n -0179.eparmtfunctiolsk_vgd=,:'


@pytest.fixture(autouse=True)
def checks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each schema would take most of the time."""
    monkeypatch.setattr(module, "_tried", faults_of)


def json_schemas() -> st.SearchStrategy[Any]:
    short = st.integers(0, 3)
    leaves = st.one_of(
        st.just({}),
        st.just({"type": "boolean"}),
        st.just({"type": "null"}),
        st.just({"type": "integer", "minimum": -3, "maximum": 40}),
        st.just({"$ref": "#/$defs/d"}),
        st.builds(lambda n: {"type": "string", "maxLength": n}, short),
        st.just({"type": "string"}),
        st.just({"type": "string", "description": "said"}),
        st.just({"enum": ["a", 1, None, "</parameter>", "b c"]}),
        st.just({"type": "string", "enum": ["on", "off", "on\n", "", "</arg_value>", "é😀"]}),
        st.just({"type": "string", "const": " x"}),
        st.just({"type": ["string", "null"]}),
        st.just({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "T"}),
        st.just({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]}),
        st.just({"type": ["string"], "minLength": 1, "maxLength": 4}),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda one: {"type": "array", "items": one, "maxItems": 3}, inner),
            objects(inner),
        ),
        max_leaves=4,
    )


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["s", "key", "a.b", "x y", "o<", "é"])
    return st.builds(
        lambda properties, count, more: {
            "type": "object",
            "properties": properties,
            "required": list(properties)[:count],
            **more,
        },
        st.dictionaries(names, inner, max_size=3),
        st.integers(0, 2),
        st.sampled_from([{}, {"additionalProperties": False}]),
    )


def parameters() -> st.SearchStrategy[Any]:
    defs = {"$defs": {"d": {"type": "array", "items": {"type": "string"}, "maxItems": 2}}}
    some = objects(json_schemas()).map(lambda schema: {**schema, **defs})
    odd: list[Any] = [
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object"},
    ]
    return st.one_of(some, st.sampled_from(odd))


def walk(guide: Guide, texts: ModelTokenizer, chance: random.Random) -> list[int]:
    """Return ids that a guide lets through, chosen at random: those that close things often."""
    special = set(texts.tokenizer.get_added_tokens_decoder())
    liked = {texts.encode(char)[0] for char in FAVOURITES if len(texts.encode(char)) == 1}
    closings = ["\n</parameter>\n", "</arg_value>\n", "</arg_key>", '"', "]", "}", "</tool_call>"]
    ids: list[int] = []
    said = ""
    while len(ids) < MOST:
        assert guide.arrived(30.0)
        allowed = (~guide.forbidden).nonzero()[:, 0].tolist()
        assert allowed, said
        closing = [id_ for id_ in allowed if id_ in special]
        going = [id_ for id_ in map(texts.token_to_id, _next(said, closings)) if id_ in allowed]
        groups = [(allowed, 3), ([id_ for id_ in allowed if id_ in liked], 3)]
        groups += [(closing, 4), (going, 12)]
        kept = [(group, weight) for group, weight in groups if group]
        (group,) = chance.choices([one for one, _ in kept], [weight for _, weight in kept])
        id_ = chance.choice(group)
        ids.append(id_)
        if id_ in texts.eos_ids:
            return ids
        said = (said + texts.decode([id_], skip_special_tokens=False))[-40:]
        guide.advance(id_)
    return ids


def _next(said: str, closings: list[str]) -> Iterator[str]:
    for closing in closings:
        size = next(n for n in range(len(closing) - 1, -1, -1) if said.endswith(closing[:n]))
        yield "Ċ" if closing[size] == "\n" else closing[size]


def begun(
    family: ChatFamily, tools: list[Any], name: str | None, *, strict: bool
) -> tuple[Constraint, list[int]]:
    forms = []
    end = ""
    for tool in tools if name is None else tools[:1]:
        called = tool["function"]["name"]
        frame = family.call_frame(called, named=name is not None, several=True)
        assert frame is not None
        schema = json.dumps(tool["function"]["parameters"])
        forms.append(
            Form(schema, not strict, frame.before, frame.after, f"the tool {called!r}",
                 again=frame.again, fields=frame.fields)
        )  # fmt: skip
        end = frame.end
    return Constraint(forms, end=end), family.begun_call([], name) or []


@pytest.mark.parametrize(("name", "template", "with_tokens"), FORMS)
def test_what_a_grammar_lets_through_is_read_as_calls_that_fit(name, template, with_tokens):
    texts = replace(tokenizer(name, with_tokens=with_tokens), chat_template=template + SHOWS)
    family = choose_family(name, texts, ChatTemplateRenderer(texts))
    ended = several = 0

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(
        schemas=st.lists(parameters(), min_size=1, max_size=2),
        named=st.booleans(),
        strict=st.booleans(),
        seed=st.integers(0, 1 << 30),
    )
    def check(schemas: list[Any], named: bool, strict: bool, seed: int) -> None:
        nonlocal ended, several
        tools = [
            {"type": "function", "function": {"name": called, "parameters": schema}}
            for called, schema in zip(("f", "get_x"), schemas, strict=False)
        ]
        constraint, opening = begun(family, tools, "f" if named else None, strict=strict)

        async def sampled() -> list[int] | None:
            try:
                guide = await made.guide(constraint, 60.0)
                return walk(guide, texts, random.Random(seed))
            except ConstraintRefused:
                assert strict or '"o<"' in json.dumps(schemas)
                return None

        if (ids := asyncio.run(sampled())) is None:
            return
        plain = family.reader([], tools, (), opening)
        found = summary(plain.feed(ids, last=True))
        whole = ids[-1] in texts.eos_ids
        if whole:
            assert found.calls
            assert (found.content, found.reasoning) == ("", None)
            ended += 1
            several += len(found.calls) > 1
        for called, arguments in found.calls if whole else found.calls[:-1]:
            schema = next(t for t in tools if t["function"]["name"] == called)["function"]
            value = json.loads(arguments)
            assert isinstance(value, dict)
            if strict:
                Draft202012Validator(schema["parameters"]).validate(value)
        held = CallsOnly(family.reader([], tools, (), opening))
        assert summary(held.feed(ids, last=True)).content == ""

    made = Grammars(texts, texts.vocab_size)
    try:
        check()
    finally:
        made.close()
    assert ended > 20
    assert several or name == "gpt-oss"
