"""Calls whose values are written without quotes, so that they are read as a whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rejoinder.chat.families.blocks import tool_name
from rejoinder.chat.families.events import EventWriter
from rejoinder.chat.families.lexer import Lexeme
from rejoinder.chat.families.tagged import Reading
from rejoinder.types import Fields, Json

IsText: TypeAlias = Callable[[str, str], bool]
"""Whether a parameter, by the names of its function and its own, is a string."""
_JSON_BEGINS = re.compile(r'\s*(?=["{\[])')
_JSON = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as its text says it, the values still as they were written."""

    name: str
    values: dict[str, str]


ReadCall: TypeAlias = Callable[[str, IsText], WrittenCall | None]
"""Reads what stands between the markers of a call; None where that is none."""


def written_call(name: str, pairs: Sequence[tuple[str, str]]) -> WrittenCall | None:
    """Return a call; None where a parameter has two values, for one of them would be lost."""
    values = dict(pairs)
    return WrittenCall(name, values) if len(values) == len(pairs) else None


def value_end(
    body: str, start: int, closing: re.Pattern[str], *, is_text: bool
) -> re.Match[str] | None:
    """Return the marker that ends a value; in a JSON string what looks like one is none.

    Args:
        body: the call.
        start: where the value begins.
        closing: the marker.
        is_text: the value is plain text, whatever it looks like.
    """
    begun = None if is_text else _JSON_BEGINS.match(body, start)
    if begun is not None:
        try:
            _, end = _JSON.raw_decode(body, begun.end())
        except (ValueError, RecursionError):
            pass  # it is plain text then, too
        else:
            found = closing.search(body, end)
            if found is not None and not body[end : found.start()].strip():
                return found
    return closing.search(body, start)


class CollectedBlock:
    """A call that is read once its closing marker has come.

    Formats that write values without quotes need the end of a value to know what it is.
    """

    def __init__(
        self,
        out: EventWriter,
        opening: str,
        closing: str,
        read: ReadCall,
        types: ParameterTypes,
        inner: Collection[str] = (),
    ) -> None:
        """``inner``: markers that are part of a call."""
        self._out = out
        self._closing = closing
        self._read = read
        self._types = types
        self._inner = inner
        self._parts: list[str] = []
        self._opening = opening
        self._end = ""
        self.begun = False
        self.awaits: str | None = None

    @property
    def held(self) -> str:
        """See ``Block``."""
        return "" if self.begun else "".join((self._opening, *self._parts, self._end))

    def feed(self, lexeme: Lexeme) -> Reading:
        """See ``Block``."""
        if lexeme.marker and lexeme.text == self._closing:
            self._end = lexeme.text
            call = self._read("".join(self._parts), self._types.is_text)
            if call is not None:
                self.begun = True
                self._out.begin(call.name)
                self._out.arguments(self._types.arguments(call))
            return Reading.OVER
        if lexeme.marker and lexeme.text not in self._inner:
            return Reading.UNREAD
        self._parts.append(lexeme.text)
        return Reading.MORE

    def close(self) -> None:
        """See ``Block``."""
        if self.begun:
            self._out.end()


class ParameterTypes:
    """Which parameters are strings, by the definitions of the tools."""

    def __init__(self, tools: Sequence[Json]) -> None:
        self._strings = {
            (name, parameter)
            for name, schemas in map(_parameters, tools)
            for parameter, schema in schemas.items()
            if Fields.is_text(schema)
        }

    def is_text(self, name: str, parameter: str) -> bool:
        """Whether a function's parameter is a string, which its text is as it stands."""
        return (name, parameter) in self._strings

    def arguments(self, call: WrittenCall) -> str:
        """Return a call's arguments as JSON text."""
        pairs = [
            f"{json.dumps(key, ensure_ascii=False)}: {self._value(call.name, key, text)}"
            for key, text in call.values.items()
        ]
        return "{" + ", ".join(pairs) + "}"

    def _value(self, name: str, parameter: str, text: str) -> str:
        """A parameter of type string is its text; others are JSON, as written, if they are that."""
        if not self.is_text(name, parameter):
            try:
                # Python's own integers would end at some thousand digits.
                json.loads(text, parse_constant=_refuse_constant, parse_int=float)
            except (ValueError, RecursionError):
                pass
            else:
                return text.strip()
        return json.dumps(text, ensure_ascii=False)


def _refuse_constant(name: str) -> None:
    """NaN and the infinities are no JSON."""
    raise ValueError(name)


def _parameters(tool: Json) -> tuple[str, Json]:
    function = tool.get("function", tool)
    schema = function.get("parameters") if isinstance(function, dict) else None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return tool_name(tool), properties if isinstance(properties, dict) else {}
