"""Writes a constraint in the library's language: a grammar per schema, and one around them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
from llguidance import LLMatcher

from rejoinder.engine.base import Constraint, Form
from rejoinder.engine.torch_engine.field_grammar import (
    Text,
    Unenforceable,
    Value,
    any_text,
    values_of,
)
from rejoinder.errors import ConstraintRefused
from rejoinder.types import Fields

_SPACE = r"[\x20\x0A\x09]{1,32}"
"""White space between two parts. Small models write it for ever where they may."""
_NOTHING_FITS = "NoExtension"
"""What the library says where no byte can follow."""
_OPTIONS_OF_OTHERS = re.compile(r"Enable '\w{1,40}' option.*", re.DOTALL)
"""Advice of the library about its own options, which clients do not have. The text around it quotes
the client's, so nothing in here may repeat without bound before what must come."""
_MOST_FAULT_CHARS = 500
PANIC = "panic:"
"""How the library begins what it says of a fault of its own, with places of its code in it."""
ANY_OBJECT = '{"type":"object"}'


class _Part(msgspec.Struct, omit_defaults=True):
    """A grammar that another one refers to: a schema, or rules."""

    name: str
    json_schema: msgspec.Raw | None = None
    """As the library has written it: reading it here could change its numbers."""
    lark_grammar: str | None = None


class _OfSchema(msgspec.Struct):
    json_schema: msgspec.Raw


class _Made(msgspec.Struct):
    """What the library writes."""

    grammars: list[_OfSchema]


class Grammar(NamedTuple):
    """The grammar of a constraint, for the library."""

    text: str
    owners: Sequence[int]
    """Of each of its parts behind the first, which form it comes from."""
    loosened: Sequence[tuple[int, str]]
    """Forms that are held to less than their schema asks for, by their places, and why."""


def grammar_of(constraint: Constraint, tokens: Mapping[str, int]) -> Grammar:
    """Return the grammar of a constraint.

    Args:
        constraint: what the answer has to be.
        tokens: texts, and the ids that alone count for them outside of the JSON.

    Raises:
        ConstraintRefused: a schema is no JSON object, or too deep.
    """
    return _Writer(constraint, tokens).written()


class _Writer:
    def __init__(self, constraint: Constraint, tokens: Mapping[str, int]) -> None:
        self._constraint = constraint
        self._tokens = tokens
        self._rules: list[str] = []
        self._parts: list[_Part] = []
        self._owners: list[int] = []
        self._loosened: list[tuple[int, str]] = []

    def written(self) -> Grammar:
        forms = dict(enumerate(self._constraint.forms))
        more = [f"more{at}" for at, form in forms.items() if form.again is not None]
        whole = [f"({' | '.join(f'form{at}' for at in forms)})"]
        whole += [f"({' | '.join(more)})*"] if more else []
        self._rule("start", *whole, *self._literals(self._constraint.end))
        for at, form in forms.items():
            after = list(self._literals(form.after))
            self._rule(f"form{at}", *self._literals(form.before), f"said{at}", *after)
            if form.again is not None:
                self._rule(f"more{at}", *self._literals(form.again), f"said{at}", *after)
            if form.fields is None:
                self._rule(f"said{at}", self._json(at, self._object(at, form)))
            else:
                self._fields(at, form, form.fields)
        main = _Part("answer", lark_grammar="\n".join(self._rules))
        text = msgspec.json.encode({"grammars": [main, *self._parts]}).decode()
        return Grammar(text, self._owners, self._loosened)

    def _fields(self, at: int, form: Form, fields: Fields) -> None:
        made: list[str] = []
        for number, one in enumerate(self._values(at, form, fields)):
            rule = f"field{at}_{number}"
            made.append(rule if one.required else f"{rule}?")
            if one.name is None:
                head = [*self._literals(fields.before), f"/{fields.name}/"]
                head += self._literals(fields.between)
            else:
                head = list(self._literals(fields.before + one.name + fields.between))
            said = [" ".join(self._value(at, form, fields, kind)) for kind in one.kinds]
            self._rule(rule, *head, f"({' | '.join(said)})")
        self._rule(f"said{at}", *(made or ['""']))

    def _value(self, at: int, form: Form, fields: Fields, value: Text | str) -> list[str]:
        after = list(self._literals(fields.after))
        if isinstance(value, str):
            try:
                return [self._json(at, _schema(replace(form, schema=value))), *after]
            except ConstraintRefused as error:
                self._loosen(at, form, error)
            value = any_text(fields)
        if after[0].startswith("<["):
            # No token of a grammar may be empty.
            text = f"({value.regex}) & /(?s:.+)/"
            said = self._part(at, lark_grammar=f"start: TEXT\nTEXT: {text}")
            return [f"({said})?" if value.may_be_empty else said, *after]
        # One token together: of two, the first would take as its own what begins the second.
        lark = f"start: TEXT\nTEXT: ({value.regex}) {after[0]}"
        return [self._part(at, lark_grammar=lark), *after[1:]]

    def _values(self, at: int, form: Form, fields: Fields) -> list[Value]:
        """Return the properties of a form, or those of any object where it has to be loosened."""
        try:
            return values_of(form.schema, fields, lenient=form.lenient)
        except Unenforceable as error:
            self._loosen(at, form, refused(str(error), form))
            return values_of(ANY_OBJECT, fields, lenient=True)

    def _object(self, at: int, form: Form) -> msgspec.Raw:
        """Return the schema of a form, or of any object where it has to be loosened."""
        try:
            return _schema(form)
        except ConstraintRefused as error:
            self._loosen(at, form, error)
            return _schema(replace(form, schema=ANY_OBJECT))

    def _loosen(self, at: int, form: Form, refusal: ConstraintRefused) -> None:
        """Take note that a form is held to less; raises its refusal where it may not be."""
        if not form.loosens or form.schema == ANY_OBJECT:
            raise refusal
        self._loosened.append((at, str(refusal)))

    def _json(self, at: int, schema: msgspec.Raw) -> str:
        return self._part(at, json_schema=schema)

    def _part(
        self, at: int, json_schema: msgspec.Raw | None = None, lark_grammar: str | None = None
    ) -> str:
        name = f"part{len(self._parts)}"
        self._parts.append(_Part(name, json_schema, lark_grammar))
        self._owners.append(at)
        return f"@{name}"

    def _rule(self, name: str, *parts: str) -> None:
        self._rules.append(f"{name}: {' '.join(parts)}")

    def _literals(self, text: str) -> Iterator[str]:
        tokens = self._tokens
        found = sorted((one for one in tokens if one in text), key=len, reverse=True)
        pattern = "|".join(map(re.escape, found)) or r"(?!)"
        for part in re.split(f"({pattern})", text):
            if part in tokens:
                yield f"<[{tokens[part]}]>"
            elif part:
                yield json.dumps(part)


def refused(fault: str, form: Form | None = None) -> ConstraintRefused:
    """Return the refusal of a form's schema; without one, of all together."""
    told = _OPTIONS_OF_OTHERS.sub("", fault.removesuffix("<non-verbose/>")).strip()
    if told.startswith(PANIC):
        told = "it is too complex to compile"
    if told.startswith(_NOTHING_FITS):
        told = "no finite JSON text fits it"
    whose = f" of {form.subject}" if form is not None and form.subject else ""
    text = f"the schema{whose} cannot be enforced: {told[:_MOST_FAULT_CHARS]}"
    return ConstraintRefused(text)


def _schema(form: Form) -> msgspec.Raw:
    try:
        text = LLMatcher.grammar_from_json_schema(
            form.schema,
            # All of them: what is missing here, a schema could set for itself.
            overrides={
                "item_separator": ",",
                "key_separator": ":",
                "whitespace_flexible": True,
                "whitespace_pattern": _SPACE,
                "coerce_one_of": form.lenient,
                "lenient": form.lenient,
            },
        )
    except ValueError as error:
        raise refused(str(error), form) from error
    (made,) = msgspec.json.decode(text, type=_Made).grammars
    return made.json_schema
