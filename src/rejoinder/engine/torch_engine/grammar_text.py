"""Writes a constraint in the library's language: a grammar per schema, and one around them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec
from llguidance import LLMatcher

from rejoinder.engine.base import Constraint, Form
from rejoinder.errors import ConstraintRefused

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


class _OfSchema(msgspec.Struct):
    """A grammar that is a schema."""

    name: str
    json_schema: msgspec.Raw
    """As the library has written it: reading it here could change its numbers."""


class _Written(msgspec.Struct):
    grammars: list[_OfSchema]


def grammar_of(constraint: Constraint, tokens: Mapping[str, int]) -> str:
    """Return the grammar of a constraint.

    Args:
        constraint: what the answer has to be.
        tokens: texts, and the ids that alone count for them outside of the JSON.

    Raises:
        ConstraintRefused: a schema is no JSON object, or too deep.
    """
    forms = dict(enumerate(constraint.forms))
    rules = [f"start: {' | '.join(f'form{at}' for at in forms)}"]
    rules += [f"form{at}: {_rule(form, f'@schema{at}', tokens)}" for at, form in forms.items()]
    whole = {"name": "answer", "lark_grammar": "\n".join(rules)}
    schemas = [_OfSchema(f"schema{at}", _schema(form)) for at, form in forms.items()]
    return msgspec.json.encode({"grammars": [whole, *schemas]}).decode()


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
        if form.loosens and form.schema != ANY_OBJECT:
            return _schema(replace(form, schema=ANY_OBJECT))
        raise refused(str(error), form) from error
    (made,) = msgspec.json.decode(text, type=_Written).grammars
    return made.json_schema


def _rule(form: Form, schema: str, tokens: Mapping[str, int]) -> str:
    return " ".join([*_literals(form.before, tokens), schema, *_literals(form.after, tokens)])


def _literals(text: str, tokens: Mapping[str, int]) -> Iterator[str]:
    found = sorted((one for one in tokens if one in text), key=len, reverse=True)
    pattern = "|".join(map(re.escape, found)) or r"(?!)"
    for part in re.split(f"({pattern})", text):
        if part in tokens:
            yield f"<[{tokens[part]}]>"
        elif part:
            yield json.dumps(part)
