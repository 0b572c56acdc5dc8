"""The form that a client wants an answer in: JSON, or JSON that fits a schema."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from rejoinder.engine.base import Form
from rejoinder.engine.limits import check_schemas
from rejoinder.errors import ConstraintRefused
from rejoinder.gateway.errors import ApiError
from rejoinder.types import Json

_ANY_OBJECT: Json = {"type": "object"}
_DRAFT = re.compile(r"https?://json-schema\.org/(draft-0[467]/schema|draft/20\d\d-\d\d/schema)#?")


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What the engine has to hold an answer to."""

    schema: str
    """As JSON text, with the properties in the client's order: answers have them in it, too."""
    lenient: bool
    """What of the schema cannot be enforced may be left out."""
    param: str
    """The field of the request that asks for it."""


def named_format(
    kind: str, schema: Json | None, *, strict: bool, param: str, schema_param: str
) -> AnswerFormat | None:
    """Return the form that OpenAI's APIs call ``kind``; None for text.

    Args:
        kind: ``text``, ``json_object`` or ``json_schema``.
        schema: of the last.
        strict: refuse what of the schema cannot be enforced.
        param: the field of the request that asks for it.
        schema_param: the field of the schema.

    Raises:
        ApiError: 400, another kind, no schema, or a very large one.
    """
    match kind:
        case "text":
            return None
        case "json_object":
            return _format(_ANY_OBJECT, param, strict=True)
        case "json_schema":
            return json_schema(schema, schema_param, strict=strict)
        case _:
            raise unknown_format(kind, "'text', 'json_object' or 'json_schema'", param)


def json_schema(schema: Json | None, param: str, *, strict: bool) -> AnswerFormat:
    """Return the form of JSON that fits a schema.

    Raises:
        ApiError: 400, there is no schema, or a very large one.
    """
    if schema is None:
        raise ApiError(400, "invalid_value", f"{param} needs a JSON schema as its schema", param)
    return _format(schema, param, strict=strict)


def unknown_format(kind: str, known: str, param: str) -> ApiError:
    """Return the refusal of a form that is not known."""
    text = f"{param} of type {kind!r} is not served: ask for {known}, or leave it out"
    return ApiError(400, "unsupported_parameter", text, param)


def without_unknown_dialect(schema: Json) -> Json:
    """Return a schema without a ``$schema`` that names no draft: it constrains nothing here.

    One that names a draft stays, in the draft's own spelling.
    """
    dialect = schema.get("$schema")
    if not isinstance(dialect, str):
        return schema
    known = _DRAFT.fullmatch(dialect)
    rest = {key: value for key, value in schema.items() if key != "$schema"}
    if known is None:
        return rest
    draft = known.group(1)
    spelled = f"http://json-schema.org/{draft}#" if "/20" not in draft else dialect
    return {"$schema": spelled, **rest}


def _format(schema: Json, param: str, *, strict: bool) -> AnswerFormat:
    text = msgspec.json.encode(without_unknown_dialect(schema)).decode()
    try:
        check_schemas([Form(text)])
    except ConstraintRefused as error:
        raise ApiError(error.status, error.code, f"{param}: {error}", param) from error
    return AnswerFormat(text, not strict, param)
