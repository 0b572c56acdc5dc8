"""What becomes of schemas: grammars, or refusals that say why; none may hang or take the engine."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tokenizers import AddedToken, Tokenizer, models

from rejoinder.engine.base import Constraint, Form
from rejoinder.engine.torch_engine import grammars as module
from rejoinder.engine.torch_engine import guide as guide_module
from rejoinder.engine.torch_engine.grammar_check import Fault
from rejoinder.engine.torch_engine.grammars import Grammars
from rejoinder.engine.torch_engine.guide import Guide
from rejoinder.errors import ConstraintRefused, EngineTimeout, EngineUnavailable
from rejoinder.models.tokenizer import ModelTokenizer

VOCAB = 320
"""More than the tokenizer has, as the padded head of a model."""
END = 258


@pytest.fixture
def grammars(tiny_tokenizer: ModelTokenizer) -> Iterator[Grammars]:
    made = Grammars(tiny_tokenizer, VOCAB)
    yield made
    made.close()


def allowed(guide: Guide) -> set[int]:
    assert guide.arrived(30.0)
    return set((~guide.forbidden).nonzero()[:, 0].tolist())


async def reads(grammars: Grammars, texts: ModelTokenizer, schema: object, said: str) -> bool:
    """Whether a schema lets a text pass, end token included."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return await takes(grammars, [Form(text)], texts.encode(said))


async def takes(grammars: Grammars, forms: list[Form], ids: list[int]) -> bool:
    """Whether one of some forms lets ids pass, with an end token after them and not before."""
    guide = await grammars.guide(Constraint(forms), 60.0)
    for id_ in ids:
        if id_ not in allowed(guide):
            return False
        guide.advance(id_)
    return END in allowed(guide)


OBJECT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", None]}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        ('{"a":1}', True),
        ('{\n  "a": 1,\n  "b": null\n}', True),
        ('{"b":"x","a":1}', False),
        ('{"a":1,"c":2}', False),
        ('{"a":1', False),
        ("{}", False),
        ('{"a":' + " " * 33 + "1}", False),
        (' {"a":1}', False),
    ],
)
async def test_only_what_fits_may_be_said_with_little_white_space_and_an_end(
    grammars, tiny_tokenizer, said, fits
):
    assert await reads(grammars, tiny_tokenizer, OBJECT, said) is fits


async def test_a_schema_cannot_set_options_of_the_library_for_itself(grammars, tiny_tokenizer):
    options = {"whitespace_pattern": "[ ]*", "item_separator": ";", "key_separator": "="}
    schema = OBJECT | {"x-guidance": options}
    assert not await reads(grammars, tiny_tokenizer, schema, '{"a"=1;"b"="x"}')
    assert not await reads(grammars, tiny_tokenizer, schema, '{"a":' + " " * 33 + "1}")
    assert await reads(grammars, tiny_tokenizer, schema, '{"a":1,"b":"x"}')


async def test_no_id_beyond_the_tokenizer_and_no_special_one_may_be_sampled(grammars):
    guide = await grammars.guide(Constraint([Form('{"type": "string"}')]), 60.0)
    while (some := allowed(guide)) and guide.advance(min(some)):
        assert not some & set(range(259, VOCAB))
        assert not some & {256, 257}
        if len(some) > 100:
            break


async def test_ids_that_lift_the_constraint_may_come_first_and_only_first(grammars, tiny_tokenizer):
    constraint = Constraint([Form('{"const": "ab"}')], unless=[257])
    guide = await grammars.guide(constraint, 60.0)
    quote = tiny_tokenizer.encode('"')[0]
    assert allowed(guide) == {quote, 257}
    assert guide.advance(257) is False
    guide = await grammars.guide(constraint, 60.0)
    assert guide.advance(quote) is True
    assert 257 not in allowed(guide)


async def test_what_cannot_be_enforced_is_refused_or_left_out(grammars):
    schema = json.dumps({"type": "string", "not": {"const": "x"}})
    with pytest.raises(ConstraintRefused, match="not"):
        await grammars.guide(Constraint([Form(schema)]), 60.0)
    assert await grammars.guide(Constraint([Form(schema, lenient=True)]), 60.0)


async def test_arguments_of_a_tool_that_cannot_be_enforced_are_any_object(grammars, tiny_tokenizer):
    """Not where the client says strict, and not the forms beside it."""
    never = json.dumps({"type": "object", "required": ["a"], "additionalProperties": False})
    ahead = json.dumps({"type": "object", "properties": {"a": {"pattern": "(?!x)y"}}})
    good = Form('{"enum": [1]}', lenient=True, subject="the tool 'g'")
    for schema in (never, ahead, "[]"):
        bad = Form(schema, lenient=True, before="-", subject="the tool 'f'")
        assert await takes(grammars, [good, bad], tiny_tokenizer.encode('-{"b":2}'))
        assert await takes(
            grammars,
            [bad, replace(bad, before="+", subject="the tool 'h'")],
            tiny_tokenizer.encode('+{"b":2}'),
        )
        assert not await takes(grammars, [good, bad], tiny_tokenizer.encode("2"))
        strict = replace(bad, lenient=False)
        with pytest.raises(ConstraintRefused, match="the tool 'f'"):
            await grammars.guide(Constraint([good, strict]), 60.0)


async def test_what_is_known_is_not_compiled_again_and_each_answer_has_its_own(
    grammars, tiny_tokenizer, monkeypatch
):
    made = []
    plain = Grammars._matcher

    def counted(self: Grammars, constraint: Constraint):
        made.append(constraint)
        return plain(self, constraint)

    monkeypatch.setattr(Grammars, "_matcher", counted)
    constraint = Constraint([Form('{"const": "ab"}')])
    first = await grammars.guide(constraint, 60.0)
    ids = tiny_tokenizer.encode('"ab"')
    first.advance(ids[0])
    second = await grammars.guide(constraint, 60.0)
    assert allowed(second) == {ids[0]}
    assert allowed(first) == {ids[1]}
    assert len(made) == 1


async def test_what_was_not_asked_for_the_longest_is_forgotten_first(grammars, monkeypatch):
    monkeypatch.setattr(module, "_MOST_KNOWN_CHARS", 1200)
    tried: list[str] = []

    def one_more(grammar: str) -> list[Fault]:
        tried.append(grammar)
        return []

    monkeypatch.setattr(module, "_tried", one_more)
    for name in ("a", "b", "a", "c", "a", "b"):
        schema = json.dumps({"const": name * 200})
        await grammars.guide(Constraint([Form(schema)]), 60.0)
    assert len(tried) == 4  # each once, and b again: c took its place


async def test_a_fault_of_the_library_is_told_without_its_insides(grammars, monkeypatch):
    monkeypatch.setattr(module, "_tried", lambda _: [Fault("panic: at /home/x/lib.rs:7")])
    with pytest.raises(ConstraintRefused, match="too complex to compile") as caught:
        await grammars.guide(Constraint([Form("{}")]), 60.0)
    assert "lib.rs" not in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"const": "a <|end|>"},
        {"type": "object", "properties": {"<|end|>": {}}},
        {"type": "string", "pattern": "^<|end|>"},
        {"type": "object", "properties": {"title": {"const": "<|end|>"}}},
    ],
    ids=["value", "name", "pattern", "a property like a keyword"],
)
async def test_no_schema_has_the_text_of_a_special_token_said(tiny_tokenizer, schema):
    """It would be said as that token: the answer would end there."""
    texts = Tokenizer.from_str(tiny_tokenizer.tokenizer.to_str())
    texts.add_special_tokens([AddedToken("<|end|>", special=True)])
    grammars = Grammars(replace(tiny_tokenizer, tokenizer=texts), VOCAB)
    try:
        with pytest.raises(ConstraintRefused, match="stands for a token of the model"):
            await grammars.guide(Constraint([Form(json.dumps(schema))]), 60.0)
        told = json.dumps({"type": "string", "description": "No <|end|> please."})
        assert await grammars.guide(Constraint([Form(told)]), 60.0)
    finally:
        grammars.close()


async def test_a_refusal_does_not_advise_options_that_clients_do_not_have(grammars):
    schema = json.dumps({"oneOf": [{"type": "string"}, {"type": "string"}]})
    with pytest.raises(ConstraintRefused, match="oneOf") as caught:
        await grammars.guide(Constraint([Form(schema)]), 60.0)
    assert "Enable" not in str(caught.value)


ONE = Form('{"enum": [1, 12]}', before=' "one": ', after="}\n")
TWO = Form('{"$ref": "#/$defs/x", "$defs": {"x": {"const": "ü"}}}', before=' "on": ', after="｜")


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        (' "one": 1}\n', True),
        (' "one": 12}\n', True),
        (' "on": "ü"｜', True),
        (' "one": "ü"}\n', False),
        (' "on": 1｜', False),
        (' "one": 1', False),
        (' "one":  1}\n', False),
        (' "one": 1}\n "one": 1}\n', False),
    ],
)
async def test_an_answer_is_one_of_several_forms_with_their_text_around_the_json(
    grammars, tiny_tokenizer, said, fits
):
    assert await takes(grammars, [ONE, TWO], tiny_tokenizer.encode(said)) is fits


MORE = [
    Form('{"enum": [1, 12]}', before="a", again=", a", after="!"),
    Form('{"const": "b"}', before="b", after="?"),
    Form('{"type": "boolean"}', before="c", again=", c", after=""),
]


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        ("a1!.", True),
        ("a12!, a1!, ctrue.", True),
        ('b"b"?, a1!.', True),
        ("ctrue, cfalse, a1!.", True),
        ("a1!", False),
        ('a1!, b"b"?.', False),
        (", a1!.", False),
        ("a1!, .", False),
        (".", False),
    ],
)
async def test_several_forms_follow_each_other_up_to_the_end(grammars, tiny_tokenizer, said, fits):
    guide = await grammars.guide(Constraint(MORE, end="."), 60.0)
    for id_ in tiny_tokenizer.encode(said):
        if id_ not in allowed(guide):
            assert not fits
            return
        guide.advance(id_)
    assert (END in allowed(guide)) is fits


async def test_a_text_around_the_json_that_has_a_token_is_that_token_alone(tiny_tokenizer):
    made = Tokenizer.from_str(tiny_tokenizer.tokenizer.to_str())
    made.add_tokens([AddedToken("<x>", special=False), AddedToken("<x>y", special=False)])
    texts = replace(tiny_tokenizer, tokenizer=made)
    grammars = Grammars(texts, VOCAB)
    forms = [Form('{"type": "string"}', before="<x>", after="\n<x>y<x>")]
    letters = tiny_tokenizer.encode
    try:
        assert await takes(grammars, forms, texts.encode('<x>"a"\n<x>y<x>'))
        assert not await takes(grammars, forms, texts.encode('<x>"a"\n<x>y') + letters("<x>"))
        assert not await takes(grammars, forms, letters("<x>") + texts.encode('"a"\n<x>y<x>'))
    finally:
        grammars.close()


@pytest.mark.parametrize("fault", ['{"$ref": "#"}', '{"type": 5}', "[1]"])
async def test_a_refusal_says_which_of_several_schemas_is_at_fault(grammars, fault):
    """That nothing fits a schema does not show behind the text before it."""
    bad = Form(fault, before="x", subject="the tool 'b'")
    with pytest.raises(ConstraintRefused, match="schema of the tool 'b' cannot be enforced"):
        await grammars.guide(Constraint([ONE, bad, TWO]), 60.0)


async def test_one_form_may_be_lenient_beside_a_strict_one(grammars):
    schema = '{"type": "string", "not": {"const": "x"}}'
    lenient, strict = Form(schema, lenient=True, subject="a"), Form(schema, subject="b")
    await grammars.guide(Constraint([lenient, ONE]), 60.0)
    with pytest.raises(ConstraintRefused, match=r"of b .*not"):
        await grammars.guide(Constraint([lenient, strict]), 60.0)


async def test_many_tools_of_usual_size_are_served(grammars, tiny_tokenizer):
    schema = json.dumps(
        {
            "type": "object",
            "properties": {f"p{n}": {"type": "string", "description": "d" * 100} for n in range(8)},
        }
    )
    forms = [Form(schema, before=f"{n} ", after="!") for n in range(100)]
    assert await takes(grammars, forms, tiny_tokenizer.encode('99 {"p7": "a"}!'))


def nested(depth: int) -> object:
    return {"type": "integer"} if not depth else {"type": "array", "items": nested(depth - 1)}


BLOW_UP = {"$defs": {"d40": {"type": "object"}}, "$ref": "#/$defs/d0"}
for index in range(40):
    both = [{"properties": {f"{name}{index}": {"type": "string"}}} for name in "xy"]
    BLOW_UP["$defs"][f"d{index}"] = {  # type: ignore[index]
        "allOf": [{"anyOf": both}, {"$ref": f"#/$defs/d{index + 1}"}]
    }
HOSTILE = [
    pytest.param({"type": "integer", "multipleOf": 99999989}, "complex", id="a huge automaton"),
    pytest.param(
        {"allOf": [{"type": "integer", "multipleOf": n} for n in (97, 89, 83, 79)]},
        "complex",
        id="a huge product",
    ),
    pytest.param(BLOW_UP, "large|complex", id="an exponential schema"),
    pytest.param(nested(180), "recursion", id="deep nesting"),
    pytest.param({"$ref": "#"}, "no finite", id="endless recursion"),
    pytest.param(
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        "no finite JSON text fits it, which needs itself again",
        id="endless recursion behind a brace",
    ),
    pytest.param(
        {
            "type": "array",
            "items": {"$ref": "#/$defs/n"},
            "$defs": {
                "n": {
                    "type": "object",
                    "properties": {"n": {"$ref": "#/$defs/n"}},
                    "required": ["n"],
                }
            },
        },
        "its part '#/items'",
        id="endless recursion of a part",
    ),
    pytest.param({"$ref": "https://example.com/x.json"}, "example", id="another's schema"),
    pytest.param({"type": "string", "pattern": "(?=a)b"}, "look-around", id="look-around"),
    pytest.param({"type": "string", "pattern": "("}, "regex", id="no regex"),
    pytest.param({"enum": []}, "nsatisfiable", id="nothing fits"),
    pytest.param({"type": 5}, "type", id="a wrong type"),
    pytest.param('{"type":', "EOF", id="no JSON"),
]


@pytest.mark.parametrize(("schema", "said"), HOSTILE)
async def test_a_schema_that_means_harm_is_refused_in_bounded_time(grammars, schema, said):
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(ConstraintRefused, match=said) as caught:
        await grammars.guide(Constraint([Form(text)]), 60.0)
    assert len(str(caught.value)) < 600


BEARABLE = [
    pytest.param({"enum": [f"value {n}" for n in range(3000)]}, "value 7", id="many values"),
    pytest.param({"enum": ["x" * 60_000, "y"]}, "y", id="a long value"),
    pytest.param({"type": "string", "pattern": "^(a+)+$"}, "a" * 40, id="nested repeats"),
    pytest.param({"type": "string", "pattern": "^((x{1000}){1000}|y)$"}, "y", id="large counts"),
    pytest.param({"type": "string", "maxLength": 10**6}, "abc", id="a long string"),
]


@pytest.mark.parametrize(("schema", "said"), BEARABLE)
async def test_a_schema_that_only_looks_dear_is_served(grammars, tiny_tokenizer, schema, said):
    assert await reads(grammars, tiny_tokenizer, schema, json.dumps(said))


async def test_masks_that_cost_too_much_end_the_answer(grammars, tiny_tokenizer):
    """Each of these states is cheap; it is their number that would fill the memory."""
    schema = {"type": "string", "pattern": "^.*a.{2000}$"}
    with pytest.raises(ConstraintRefused, match="too complex"):
        await reads(grammars, tiny_tokenizer, schema, "".join(['"', *random.choices("ab", k=3000)]))


async def test_a_refusal_quotes_a_long_text_in_part(grammars):
    """The pattern over it must not be quadratic: white space alone stopped the engine for 11 s."""
    schema = json.dumps({"type": "string", "pattern": "(" + " " * 60_000})
    with pytest.raises(ConstraintRefused) as caught:
        await grammars.guide(Constraint([Form(schema)]), 60.0)
    assert len(str(caught.value)) < 1000


async def test_only_the_processors_time_counts_against_an_answer(
    grammars, tiny_tokenizer, monkeypatch
):
    monkeypatch.setattr(guide_module, "MOST_S", 0.05)
    mask = Guide._mask

    def waiting(guide: Guide):
        time.sleep(0.06)  # as a thread waits on a machine with other work
        return mask(guide)

    monkeypatch.setattr(Guide, "_mask", waiting)
    assert await reads(grammars, tiny_tokenizer, {"const": "ab"}, '"ab"')


async def test_a_closed_engine_is_unavailable_and_no_fault(tiny_tokenizer):
    made = Grammars(tiny_tokenizer, VOCAB)
    made.close()
    with pytest.raises(EngineUnavailable):
        await made.guide(Constraint([Form("{}")]), 60.0)


async def test_a_schema_is_tried_once_and_one_that_took_too_long_each_time(grammars, monkeypatch):
    tried: list[str] = []

    def one_more(grammar: str) -> list[Fault]:
        tried.append(grammar)
        if "slow" in grammar:
            raise ConstraintRefused("too complex")
        return [] if "good" in grammar else [Fault("bad")]

    monkeypatch.setattr(module, "_tried", one_more)
    for name in ("good", "bad", "slow"):
        for _ in range(2):
            try:
                await grammars.guide(Constraint([Form(json.dumps({"const": name}))]), 60.0)
            except ConstraintRefused:
                assert name != "good"
    assert len(tried) == 4


async def test_schemas_that_wait_for_others_do_not_wait_for_ever(grammars, monkeypatch):
    gate = threading.Event()

    def slow(_: str) -> list[Fault]:
        gate.wait()
        return []

    monkeypatch.setattr(module, "_tried", slow)
    asked = [grammars.guide(Constraint([Form(json.dumps({"const": n}))]), 0.2) for n in range(4)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    gate.set()
    assert [type(result) for result in results] == [EngineTimeout] * 4


async def test_a_caller_with_many_dear_schemas_delays_its_own_only(grammars, monkeypatch):
    gate = threading.Semaphore(0)
    tried: list[str] = []

    def slow(grammar: str) -> list[Fault]:
        if "dear" in grammar:
            gate.acquire()
        tried.append("dear" if "dear" in grammar else "cheap")
        return []

    def asked(name: str, caller: str) -> asyncio.Task[Guide]:
        constraint = Constraint([Form(json.dumps({"const": name}))])
        return asyncio.create_task(grammars.guide(constraint, 60.0, caller))

    monkeypatch.setattr(module, "_tried", slow)
    await asked("known", "b")
    many = [asked(f"dear {number}", "a") for number in range(20)]
    await asyncio.sleep(0.2)
    await asyncio.wait_for(asked("known", "b"), 30.0)  # while all threads are at work
    other = asked("new", "b")
    await asyncio.sleep(0.2)
    gate.release(2)  # those at work; one more of the same caller had its turn before
    await asyncio.wait({other}, timeout=20.0)
    gate.release(len(many))
    await asyncio.gather(other, *many)
    assert tried.index("cheap", 1) <= 3
    assert tried.count("dear") == len(many)


async def test_a_schema_that_nobody_waits_for_any_more_is_not_checked(grammars, monkeypatch):
    gate = threading.Event()
    tried: list[str] = []

    def slow(grammar: str) -> list[Fault]:
        tried.append(grammar)
        gate.wait()
        return []

    monkeypatch.setattr(module, "_tried", slow)
    schemas = [Constraint([Form(json.dumps({"const": number}))]) for number in range(9)]
    asked = [asyncio.create_task(grammars.guide(one, 60.0, "a")) for one in schemas]
    await asyncio.sleep(0.2)
    for one in asked[2:-1]:
        one.cancel()
    await asyncio.gather(*asked[2:-1], return_exceptions=True)
    gate.set()
    await asyncio.gather(*asked[:2], asked[-1])
    assert len(tried) == 3


async def test_a_tokenizer_that_cannot_be_read_leaves_the_rest_of_the_engine_alone(tiny_tokenizer):
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    grammars = Grammars(replace(tiny_tokenizer, tokenizer=words, eos_ids=(1,)), 2)
    try:
        assert not grammars.works
        with pytest.raises(ConstraintRefused, match="tokenizer"):
            await grammars.guide(Constraint([Form("{}")]), 60.0)
    finally:
        grammars.close()
