"""Objects whose properties are written one by one: what may be written, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from tokenizers import AddedToken, Tokenizer

from rejoinder.engine.base import Constraint, Form
from rejoinder.engine.torch_engine import grammars as module
from rejoinder.engine.torch_engine.grammar_check import faults_of
from rejoinder.engine.torch_engine.grammars import Grammars
from rejoinder.errors import ConstraintRefused
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Fields

END = 258
FIELDS = Fields("<k>", "=", "</k>;", r"[a-z ]+", ["</k>", "<t>"])


@pytest.fixture
def grammars(tiny_tokenizer: ModelTokenizer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Grammars]:
    monkeypatch.setattr(module, "_tried", faults_of)  # no process for each
    made = Grammars(tiny_tokenizer, 320)
    yield made
    made.close()


@pytest.fixture
def with_tokens(
    tiny_tokenizer: ModelTokenizer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Grammars, ModelTokenizer]]:
    monkeypatch.setattr(module, "_tried", faults_of)
    made = Tokenizer.from_str(tiny_tokenizer.tokenizer.to_str())
    made.add_tokens([AddedToken(text, special=False) for text in ("<k>", "</k>", "<t>")])
    texts = replace(tiny_tokenizer, tokenizer=made)
    grammars = Grammars(texts, 320)
    yield grammars, texts
    grammars.close()


def form(schema: object, *, lenient: bool = False) -> Form:
    return Form(json.dumps(schema), lenient, "(", ")", "the tool 'f'", fields=FIELDS)


async def takes(grammars: Grammars, one: Form, ids: list[int]) -> bool:
    guide = await grammars.guide(Constraint([one]), 60.0)
    for id_ in ids:
        assert guide.arrived(30.0)
        if guide.forbidden[id_]:
            return False
        guide.advance(id_)
    assert guide.arrived(30.0)
    return not guide.forbidden[END]


def of(*required: str, **properties: object) -> dict:
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT = {"type": "string"}
MAYBE = {"anyOf": [TEXT, {"type": "null"}], "default": None}
CASES = [
    # Names, in their order; what is required; nothing else.
    (of("a", a=TEXT, b=TEXT), "(<k>a=x</k>;)", True),
    (of("a", a=TEXT, b=TEXT), "(<k>a=x</k>;<k>b=y</k>;)", True),
    (of("a", a=TEXT, b=TEXT), "(<k>b=y</k>;)", False),
    (of("a", a=TEXT, b=TEXT), "(<k>a=x</k>;<k>a=x</k>;)", False),
    (of("a", a=TEXT, b=TEXT), "(<k>a=x</k>;<k>c=x</k>;)", False),
    (of("c", a=TEXT), "(<k>c=x</k>;)", True),
    (of(), "()", True),
    (of(), "(<k>any=x</k>;)", True),
    (of(), "(<k>any=x</k>;<k>more=x</k>;)", False),
    (of() | {"additionalProperties": False}, "(<k>any=x</k>;)", False),
    (of() | {"additionalProperties": {"type": "integer"}}, "(<k>any=x</k>;)", False),
    (of() | {"additionalProperties": {"type": "integer"}}, "(<k>any=7</k>;)", True),
    # Plain text.
    (of(a=TEXT), "(<k>a=</k>;)", True),
    (of(a=TEXT), '(<k>a=1 <k> \n"é</k ></k>;)', True),
    (of(a=TEXT), "(<k>a=x<t></k>;)", False),
    (of(a=TEXT | {"minLength": 1, "maxLength": 2}), "(<k>a=</k>;)", False),
    (of(a=TEXT | {"minLength": 1, "maxLength": 2}), "(<k>a=éé</k>;)", True),
    (of(a=TEXT | {"minLength": 1, "maxLength": 2}), "(<k>a=abc</k>;)", False),
    (of(a=TEXT | {"enum": ["on", "only", "</k>", 1]}), "(<k>a=on</k>;)", True),
    (of(a=TEXT | {"enum": ["on", "only", "</k>", 1]}), "(<k>a=only</k>;)", True),
    (of(a=TEXT | {"enum": ["on", "only", "</k>", 1]}), "(<k>a=onl</k>;)", False),
    (of(a=TEXT | {"const": ""}), "(<k>a=</k>;)", True),
    (of(a={"type": ["string"]}), "(<k>a=12</k>;)", True),
    # Text or null: what reads as something else is no string.
    (of(a=MAYBE), "(<k>a=null</k>;)", True),
    (of(a=MAYBE), "(<k>a=nullify</k>;)", True),
    (of(a=MAYBE), "(<k>a=12</k>;)", False),
    (of(a=MAYBE), "(<k>a=12 m</k>;)", True),
    (of(a=MAYBE), '(<k>a="12"</k>;)', True),
    (of(a=MAYBE), "(<k>a= true </k>;)", False),
    (of(a=MAYBE), "(<k>a=[1]</k>;)", False),
    (of(a={"type": ["string", "null"]}), "(<k>a=x</k>;)", True),
    # JSON.
    (of(a={"type": "integer"}), "(<k>a=-12</k>;)", True),
    (of(a={"type": "integer"}), "(<k>a=x</k>;)", False),
    (of(a={"type": "array", "items": TEXT}), '(<k>a=["</k>;"]</k>;)', True),
    (of(a={"enum": ["x", 1]}), '(<k>a="x"</k>;)', True),
    (of(a={"enum": ["x", 1]}), "(<k>a=x</k>;)", False),
    (of(a={"$ref": "#/$defs/d"}) | {"$defs": {"d": {"const": 3}}}, "(<k>a=3</k>;)", True),
    (of(a={}), '(<k>a=["x</k>;)', True),
    (of(a={"description": "whatever"}), "(<k>a=x</k>;)", True),
    # What is odd, but can be held.
    ({"type": "object", "properties": {"a": TEXT}, "required": [["a"], {}, 3]}, "()", True),
    (of("a", "a", a=TEXT | {"maxLength": 10**30}), "(<k>a=x</k>;)", True),
]


@pytest.mark.parametrize(("schema", "said", "fits"), CASES)
async def test_fields_are_held(grammars, tiny_tokenizer, schema, said, fits):
    for lenient in (False, True):
        one = form(schema, lenient=lenient)
        assert await takes(grammars, one, tiny_tokenizer.encode(said)) is fits


@pytest.mark.parametrize(
    ("schema", "said", "fits"), [case for case in CASES if '"</k>;"' not in case[1]]
)
async def test_fields_are_held_where_their_markers_are_tokens(with_tokens, schema, said, fits):
    grammars, texts = with_tokens
    if " <k> " in said:
        said = said.replace(" <k> ", " ")  # would be that token
    assert await takes(grammars, form(schema), texts.encode(said)) is fits


async def test_where_a_marker_is_a_token_its_letters_are_none(with_tokens, tiny_tokenizer):
    grammars, texts = with_tokens
    letters = tiny_tokenizer.encode
    one = form(of(a=TEXT))
    closing = texts.encode("</k>;)")
    opening = [*letters("("), *texts.encode("<k>a=")]
    assert await takes(grammars, one, [*opening, *letters("x"), *closing])
    assert not await takes(grammars, one, [*opening, *letters("x</k>;)")])


REFUSED = [
    (of("A", A=TEXT), "'A' cannot be written"),
    (of("a", a=False), "'a' has no value"),
    (of(a=TEXT | {"pattern": "x"}), "'pattern' is not enforced"),
    (of(a=TEXT) | {"anyOf": []}, "'anyOf' is not enforced"),
    (of(a=TEXT | {"enum": ["</k>", 1]}), "no value that a call"),
    (of(a={"$ref": "#/properties/b"}, b=TEXT), "is none to"),
    (of(a={"type": "integer", "not": {}}), "not"),
    (of(a=of("b", b={"$ref": "#/$defs/x"})) | {"$defs": {"x": of("y", y={"$ref": "#/$defs/x"})}},
     "needs itself again"),
    ({"type": "object", "properties": []}, "has to be an object"),
    (of(a=TEXT | {"maxLength": "3"}), "have to be whole numbers"),
    (of(a=TEXT | {"maxLength": -1}), "have to be whole numbers"),
    (of(a=TEXT | {"minLength": 5, "maxLength": 2}), "no text fits: 'maxLength' is less"),
    (of(a=5), "has to be an object or true"),
    ([], "no object"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "why"), REFUSED)
async def test_what_cannot_be_held_is_refused_or_left_out(grammars, tiny_tokenizer, schema, why):
    with pytest.raises(ConstraintRefused, match=f"the tool 'f' cannot be enforced: .*{why}"):
        await grammars.guide(Constraint([form(schema)]), 60.0)
    assert await grammars.guide(Constraint([form(schema, lenient=True)]), 60.0)


async def test_what_is_left_out_is_told_to_the_operator(grammars):
    """Only what the library refused was: a tool whose arguments were any object looked held."""
    unsaid = [of("A", A=TEXT), of(a={"type": "integer", "$ref": "#/$defs/x"}) | {"$defs": 3}]
    for schema in unsaid:
        with capture_logs() as told:
            await grammars.guide(Constraint([form(schema, lenient=True)]), 60.0)
        assert [(one["log_level"], one["tool"]) for one in told] == [("warning", "the tool 'f'")]
    with capture_logs() as told:
        await grammars.guide(Constraint([form(of(a=TEXT), lenient=True)]), 60.0)
    assert told == []


async def test_a_lenient_property_leaves_out_what_cannot_be_enforced(grammars, tiny_tokenizer):
    one = form(of("a", a=TEXT | {"pattern": "x"}, A=TEXT), lenient=True)
    assert await takes(grammars, one, tiny_tokenizer.encode("(<k>a=y</k>;)"))
    assert not await takes(grammars, one, tiny_tokenizer.encode("()"))


async def test_many_references_to_large_definitions_are_refused(grammars):
    large = {"d": {"enum": ["x" * 20_000]}}
    schema = of(**{name: {"$ref": "#/$defs/d"} for name in map(chr, range(97, 117))})
    with pytest.raises(ConstraintRefused, match="too large"):
        await grammars.guide(Constraint([form(schema | {"$defs": large})]), 60.0)
