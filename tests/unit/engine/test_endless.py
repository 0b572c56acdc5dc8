"""Schemas that need themselves again have no finite text; others that recurse do."""

from __future__ import annotations

import time

import pytest

from rejoinder.engine.torch_engine.endless import endless_part

NODE = {"type": "object", "properties": {"next": {"$ref": "#"}}}
LIST = {"type": "array", "items": {"$ref": "#"}}
PATTERNS = {"type": "object", "additionalProperties": {"$ref": "#"}, "required": ["x1"]}
PART = {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x"]}


def of(**properties: object) -> dict:
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({**NODE, "required": ["next"]}, "#"),
        ({**LIST, "minItems": 1}, "#"),
        ({"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1}, "#"),
        ({"$ref": "#"}, "#"),
        ({"anyOf": [of(a={"$ref": "#"}), of(b={"$ref": "#"})]}, "#"),
        ({"type": "object", "additionalProperties": {"$ref": "#"}, "required": ["a"]}, "#"),
        ({"type": "object", "additionalProperties": {"$ref": "#"}, "minProperties": 1}, "#"),
        ({**NODE, "additionalProperties": False, "minProperties": 1}, "#"),
        ({**PATTERNS, "patternProperties": {"^x": {"$ref": "#"}}}, "#"),
        # A part that need not be said, but cannot be ended once it has begun.
        ({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": PART}}, "#/properties/a"),
        ({"anyOf": [{"type": "null"}, PART], "$defs": {"n": PART}}, "#/anyOf/1"),
        ({"allOf": [{"$ref": "#/$defs/a~1b"}], "$defs": {"a/b": of(x={"$ref": "#"})}}, "#"),
    ],
)
def test_what_needs_itself_is_found_nearest_to_the_root(schema, place):
    assert endless_part(schema) == place


@pytest.mark.parametrize(
    "schema",
    [
        NODE,
        LIST,
        {**NODE, "required": ["next"], "type": ["object", "null"]},
        of(next={"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
        of(children=LIST),
        of(a={"$ref": "#/$defs/leaf"}) | {"$defs": {"leaf": {"type": "string"}, "n": PART}},
        of(a={"$ref": "https://example.com/x.json"}),
        # Its pattern says what the required one is.
        {**PATTERNS, "patternProperties": {"^x": {"type": "string"}}},
        {**NODE, "minProperties": 1},
        {**NODE, "minProperties": 2, "additionalProperties": {"type": "null"}},
        # Nothing enforces this, so no answer comes to it.
        {"type": "array", "contains": of(a={"$ref": "#/contains"})},
        of(a={"$ref": "#/nowhere"}, b={"$ref": "#nobody"}),
        of(a={"enum": [1]}, b={"const": 2}),
        {"type": "object", "required": ["a", 3]},
        {"required": "a", "properties": [], "anyOf": {}},
        True,
        [1],
        None,
    ],
)
def test_what_some_finite_text_fits_is_none(schema):
    assert endless_part(schema) is None


def test_long_chains_cost_little():
    """Each part was looked at once for every other, and the check's time ran out."""
    size = 30_000
    chain: dict = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(size)}
    root = {"$ref": "#/$defs/d0", "$defs": {**chain, f"d{size}": {"type": "string"}}}
    begin = time.process_time()
    assert endless_part(root) is None
    # No matter of speed: that would take many minutes.
    assert time.process_time() - begin < 30


def test_a_long_chain_is_followed_to_its_end():
    chain = {f"d{n}": of(x={"$ref": f"#/$defs/d{n + 1}"}) for n in range(300)}
    root = {"$ref": "#/$defs/d0", "$defs": {**chain, "d300": {"type": "string"}}}
    assert endless_part(root) is None
    root["$defs"]["d300"] = of(x={"$ref": "#/$defs/d7"})
    assert endless_part(root) == "#"
