"""What the engine holds an answer to: the form that the client wants, or the call it asks for.

Whatever is held is sampled alike, told alike where it is refused, and served only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from rejoinder.chat.families.base import ChatFamily
from rejoinder.chat.families.blocks import CallFrame, tool_name
from rejoinder.engine.base import Constraint, Form
from rejoinder.engine.limits import check_schemas
from rejoinder.errors import ConstraintRefused
from rejoinder.gateway.answer_format import AnswerFormat, without_unknown_dialect
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.service import Service
from rejoinder.gateway.tool_choice import WantedCall, nameable
from rejoinder.types import Json

_CAPABILITY = "json_schema"
_TOOLS = "tools"
_NO_ARGUMENTS: Json = {"type": "object", "properties": {}, "additionalProperties": False}
_REMEDY = "change its parameters, or ask with tool_choice 'auto', which enforces nothing"


@dataclass(frozen=True, slots=True)
class Held:
    """A constraint, and who asks for it."""

    constraint: Constraint
    param: str
    """The field of the request."""
    remedy: str = ""
    """What to change where the engine refuses it; empty where the refusal says enough."""
    is_call: bool = False
    """Whether it is a call, which has no place for stop strings: it is whole, or it is none."""

    def refusal(self, error: ConstraintRefused) -> ApiError:
        """Return what the client is told."""
        text = f"{self.param}: {error}" + (f"; {self.remedy}" if self.remedy else "")
        return ApiError(error.status, error.code, text, self.param)


def held_to(service: Service, request: TurnRequest) -> Held | None:
    """Return what the engine has to hold the answers to; None where they are free.

    A call that is asked for takes the place of a form. An engine that cannot hold it is no fault
    of the request: the call is then begun, and free, as it is where the configuration says so.

    Raises:
        ApiError: 400, a form that the engine says it cannot hold, or a schema that is none.
    """
    if request.wanted_call is not None:
        if not service.config.gateway.hold_calls:
            return None
        # One that has not been described yet refuses by itself what it cannot hold.
        able = service.info is None or _CAPABILITY in service.info.capabilities
        return _call(service.family, request.tools, request.wanted_call) if able else None
    if request.answer_format is None:
        return None
    _check_engine(service, request.answer_format)
    openers = service.family.call_openers() if request.tools else []
    asked = request.answer_format
    return Held(Constraint([Form(asked.schema, asked.lenient)], openers), asked.param)


def _check_engine(service: Service, asked: AnswerFormat) -> None:
    """Refuse a form by what the engine says; one that has not been described yet does it itself."""
    if service.info is not None and _CAPABILITY not in service.info.capabilities:
        text = (
            f"{asked.param}: the engine {service.info.name!r} cannot enforce the form of an "
            "answer; leave it out, or serve with engine.kind = 'torch'"
        )
        raise ApiError(400, "unsupported_parameter", text, asked.param)


def _call(family: ChatFamily, tools: Sequence[Json], wanted: WantedCall) -> Held | None:
    chosen = [tool for tool in tools if wanted.name in (None, tool_name(tool))]
    callable_ = [tool for tool in chosen if nameable(tool_name(tool))]
    if not callable_:
        text = f"{_TOOLS}: no name of theirs can be written into a call: use letters, digits and _"
        raise ApiError(400, "invalid_value", text, _TOOLS)
    frames = [_frame(family, tool, wanted) for tool in callable_]
    found = [(tool, frame) for tool, frame in zip(callable_, frames, strict=True) if frame]
    if not found:
        return None
    forms = [_form(tool, frame) for tool, frame in found]
    end = found[0][1].end  # all are of one family
    held = Held(Constraint(forms, end=end), _TOOLS, _REMEDY, is_call=True)
    try:
        check_schemas(forms)
    except ConstraintRefused as error:
        raise held.refusal(error) from error
    return held


def _frame(family: ChatFamily, tool: Json, wanted: WantedCall) -> CallFrame | None:
    named = wanted.name is not None
    return family.call_frame(tool_name(tool), named=named, several=wanted.several)


def _form(tool: Json, frame: CallFrame) -> Form:
    name = tool_name(tool)
    function = tool.get("function", tool)
    schema = msgspec.json.encode(_arguments(function.get("parameters"), name)).decode()
    lenient = function.get("strict") is not True
    return Form(
        schema,
        lenient,
        frame.before,
        frame.after,
        f"the tool {name!r}",
        again=frame.again,
        fields=frame.fields,
    )


def _arguments(schema: object, name: str) -> Json:
    """Return the schema of a function's arguments, which are an object whatever else it says."""
    if schema is None:
        return _NO_ARGUMENTS
    if isinstance(schema, dict):
        kind = schema.get("type", "object")
        if kind == "object" or (isinstance(kind, list) and "object" in kind):
            return {**without_unknown_dialect(schema), "type": "object"}
    text = f"{_TOOLS}: the parameters of {name!r} must be a JSON schema of the type 'object'"
    raise ApiError(400, "invalid_value", text, _TOOLS)
