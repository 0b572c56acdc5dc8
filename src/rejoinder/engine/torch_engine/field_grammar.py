"""Grammars of objects whose properties are written one by one, and not as JSON.

What a property may be is told by how its family's reader reads it (``engine/base.py``): plain text
where its schema says ``"type": "string"``, else JSON, or text where it cannot be taken for JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping

import msgspec

from rejoinder.engine.limits import MOST_SCHEMAS_CHARS
from rejoinder.types import Fields, Json

_TELLING = frozenset(
    (
        "$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated",
        "description", "examples", "format", "readOnly", "title", "writeOnly",
    )
)  # fmt: skip
"""What a schema may say that asks for nothing. A format is a note, by the standard."""
_OF_OBJECTS = _TELLING | {"type", "properties", "required", "additionalProperties"}
_OF_TEXTS = _TELLING | {"type", "enum", "const", "minLength", "maxLength"}
_SHARED = ("$defs", "definitions")
_LONGEST = 1_000_000
"""Characters: no answer is as long, and regular expressions cannot count without end."""
_ANYTHING = r"/(?s:.*)/"
_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
_QUOTED = '{"type":"string"}'


class Unenforceable(Exception):
    """What of a schema cannot be enforced in fields, for whoever wrote it."""


class Text(msgspec.Struct, frozen=True):
    """A value that is plain text."""

    regex: str
    """Of the library's terminals."""
    may_be_empty: bool


class Value(msgspec.Struct, frozen=True):
    """One property of an object."""

    name: str | None
    """None: any that can be written."""
    required: bool
    kinds: list[Text | str]
    """What it may be: plain text, or JSON by a schema."""


def values_of(schema: str, fields: Fields, *, lenient: bool) -> list[Value]:
    """Return the properties of an object, in their order.

    Those that its schema does not name are left out: that no name comes twice, which no reader
    could tell from a call, is beyond a grammar. Where the schema names none, there may be one.

    Args:
        schema: of the object, as JSON text.
        fields: how it is written.
        lenient: leave out what cannot be enforced.

    Raises:
        Unenforceable: what the schema asks for cannot be written, or not be enforced.
    """
    root = msgspec.json.decode(schema)
    if not isinstance(root, dict):
        raise Unenforceable("it is no object")
    return _Object(root, fields, lenient=lenient).values()


class _Object:
    def __init__(self, root: Json, fields: Fields, *, lenient: bool) -> None:
        self._root = root
        self._fields = fields
        self._lenient = lenient
        self._chars = 0
        self._shared = {key: root[key] for key in _SHARED if key in root}

    def values(self) -> list[Value]:
        root = self._root
        self._refuse_others(root, _OF_OBJECTS)
        properties, required = root.get("properties", {}), root.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise Unenforceable("'properties' has to be an object and 'required' a list")
        more = root.get("additionalProperties", True)
        if not properties and not required:
            return [] if more is False else [Value(None, required=False, kinds=self._value(more))]
        wanted = dict.fromkeys((name for name in required if isinstance(name, str)), more)
        named = {**properties, **{name: more for name in wanted if name not in properties}}
        return list(self._named(named, wanted, properties))

    def _named(
        self, named: Mapping[str, object], required: Container[str], known: Container[str]
    ) -> Iterator[Value]:
        for name, schema in named.items():
            writable = re.fullmatch(self._fields.name, name) is not None
            if writable and schema is not False:
                if name in known and isinstance(schema, dict) and Fields.is_text(schema):
                    kinds: list[Text | str] = [self._plain(schema)]
                else:
                    kinds = self._value(schema)
                yield Value(name, name in required, kinds)
            elif name in required:
                why = (
                    "cannot be written in a call of this model"
                    if schema is not False
                    else "has no value"
                )
                raise Unenforceable(f"the required property {name[:100]!r} {why}")

    def _plain(self, schema: Json) -> Text:
        """Return what the plain text of a string may be."""
        self._refuse_others(schema, _OF_TEXTS)
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        if not _is_count(least) or not (most is None or _is_count(most)):
            raise Unenforceable("'minLength' and 'maxLength' have to be whole numbers from 0 on")
        if most is not None and most < least:
            raise Unenforceable("no text fits: 'maxLength' is less than 'minLength'")
        if most is not None and most > _LONGEST:
            most = None
        chosen = _chosen(schema)
        if chosen is None:
            length = f"/(?s:.{{{least},{'' if most is None else most}}})/"
            return Text(f"{_free(self._fields)} & {length}", may_be_empty=least == 0)
        fits = [
            text
            for text in chosen
            if least <= len(text) and (most is None or len(text) <= most)
            if not any(never in text for never in self._fields.never)
        ]
        if not fits:
            raise Unenforceable("a string may have no value that a call of this model can have")
        return Text(" | ".join(map(json.dumps, fits)), may_be_empty="" in fits)

    def _value(self, schema: object) -> list[Text | str]:
        """Return what a value may be that is read as JSON where it is JSON."""
        if schema is not True and not isinstance(schema, dict):
            raise Unenforceable("a property's schema has to be an object or true")
        if schema is True or schema.keys() <= _TELLING:
            return [any_text(self._fields)]
        if _is_text_or(schema, null=False):
            return [self._no_json_but("true|false|null"), _QUOTED]
        if _is_text_or(schema, null=True):
            return [self._no_json_but("true|false"), _QUOTED]
        if (ref := _far_reference(schema)) is None:
            return [self._whole(schema)]
        if self._lenient:
            return [any_text(self._fields)]
        raise Unenforceable(f"the $ref {ref[:100]!r} is none to {' or '.join(_SHARED)}")

    def _whole(self, schema: Json) -> str:
        text = msgspec.json.encode(schema).decode()
        if self._shared and '"$ref"' in text:
            text = msgspec.json.encode({**schema, **self._shared}).decode()
        self._chars += len(text)
        if self._chars > MOST_SCHEMAS_CHARS:
            raise Unenforceable("its properties are too large, each with what they refer to")
        return text

    def _no_json_but(self, words: str) -> Text:
        """Return the text that reads as a string, or as a word that is not among these."""
        other = rf"~/[ \t\r\n]*({words}|{_NUMBER})[ \t\r\n]*/"
        begun = r'~/[ \t\r\n]*["{\[](?s:.*)/'
        return Text(f"{_free(self._fields)} & {other} & {begun}", may_be_empty=True)

    def _refuse_others(self, schema: Json, known: Container[str]) -> None:
        others = [] if self._lenient else [key for key in schema if key not in known]
        if others:
            text = f"{others[0]!r} is not enforced where this model writes arguments as plain text"
            raise Unenforceable(text)


def any_text(fields: Fields) -> Text:
    """Return what a value may be that nothing holds."""
    return Text(_free(fields), may_be_empty=True)


def _free(fields: Fields) -> str:
    """Return a terminal of all text without what would be taken for something else."""
    never = "|".join(re.escape(text).replace("/", r"\/") for text in fields.never)
    # The complement alone is no regular expression to the library where others follow it.
    return f"~/(?s:.*)({never})(?s:.*)/ & {_ANYTHING}"


def _is_text_or(schema: Json, *, null: bool) -> bool:
    """Whether a schema allows all strings, and null, and nothing else."""
    wanted = [{"type": "string"}, {"type": "null"}] if null else [{"type": "string"}]
    asked = {key: value for key, value in schema.items() if key not in _TELLING}
    if list(asked) == ["type"]:
        kinds = asked["type"] if isinstance(asked["type"], list) else [asked["type"]]
        branches: list[object] = [{"type": kind} for kind in kinds]
    elif list(asked) in (["anyOf"], ["oneOf"]) and isinstance(next(iter(asked.values())), list):
        branches = [
            {key: value for key, value in one.items() if key not in _TELLING}
            if isinstance(one, dict)
            else one
            for one in next(iter(asked.values()))
        ]
    else:
        return False
    return len(branches) == len(wanted) and all(one in branches for one in wanted)


def _chosen(schema: Json) -> list[str] | None:
    """Return the strings among which a schema lets choose; None where it leaves them open."""
    if "const" not in schema and "enum" not in schema:
        return None
    listed = schema.get("enum", [schema.get("const")])
    if not isinstance(listed, list):
        raise Unenforceable("'enum' has to be a list")
    kept = [one for one in listed if isinstance(one, str)]
    return [one for one in kept if one == schema.get("const", one)]


def _far_reference(schema: object) -> str | None:
    """Return a reference to what does not stand beside a property; None where there is none."""
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            ref = one.get("$ref")
            if isinstance(ref, str) and not ref.startswith(tuple(f"#/{key}/" for key in _SHARED)):
                return ref
            left += one.values()
        elif isinstance(one, list):
            left += one
    return None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
