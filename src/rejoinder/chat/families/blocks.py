"""Blocks that several families share: a JSON call, and several."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from rejoinder.chat.families.events import EventWriter
from rejoinder.chat.families.json_call import JsonCall
from rejoinder.chat.families.lexer import Lexeme
from rejoinder.chat.families.tagged import Block, Reading
from rejoinder.types import Fields, Json

FRAME = " \t\r\n},"
"""What may be left of a call's frame when the answer breaks off, and says nothing."""


class JsonBlock:
    """One JSON call up to a closing marker."""

    def __init__(self, out: EventWriter, opening: str, closing: str) -> None:
        self._out = out
        self._opening = opening
        self._closing = closing
        self._call = JsonCall(out)
        self._rest = ""  # read after the call went wrong
        self.awaits: str | None = None

    @property
    def begun(self) -> bool:
        """See ``Block``."""
        return self._call.begun

    @property
    def held(self) -> str:
        """See ``Block``."""
        return ("" if self.begun else self._opening) + self._call.held + self._rest

    def feed(self, lexeme: Lexeme) -> Reading:
        """See ``Block``."""
        call = self._call
        if lexeme.marker and not call.in_string:
            if lexeme.text != self._closing:
                return Reading.UNREAD
            if self.begun:
                call.held = self._rest = ""  # the frame, even where its last bracket is missing
            else:
                self._rest += lexeme.text
            return Reading.OVER
        self._rest += lexeme.text[call.feed(lexeme.text) :]
        if call.fault or self._rest.strip():
            self.awaits = self._closing if self.begun else None
            return Reading.OVER
        return Reading.MORE

    def close(self) -> None:
        """See ``Block``."""
        if self.begun:
            self._out.end()
            if self.awaits is None and not self.held.strip(FRAME):
                self._call.held = self._rest = ""


class EitherBlock:
    """A block of one of two forms: its first text that is no white space says which."""

    def __init__(self, first: Block, second: Block, is_first: Callable[[Lexeme], bool]) -> None:
        self._first = first
        self._second = second
        self._is_first = is_first
        self._chosen: Block | None = None

    @property
    def _form(self) -> Block:
        return self._chosen or self._first

    @property
    def held(self) -> str:
        """See ``Block``."""
        return self._form.held

    @property
    def begun(self) -> bool:
        """See ``Block``."""
        return self._form.begun

    @property
    def awaits(self) -> str | None:
        """See ``Block``."""
        return self._form.awaits

    def feed(self, lexeme: Lexeme) -> Reading:
        """See ``Block``."""
        if self._chosen is None and lexeme.text.strip():
            self._chosen = self._first if self._is_first(lexeme) else self._second
        if self._chosen is None:
            self._second.feed(lexeme)  # white space may belong to either
        return self._form.feed(lexeme)

    def close(self) -> None:
        """See ``Block``."""
        self._form.close()


class CallList:
    """JSON calls one after the other: in brackets, or bare up to the end of the answer."""

    awaits: str | None = None

    def __init__(
        self,
        out: EventWriter,
        opening: str,
        separator: str,
        *,
        brackets: bool,
        may_call: Callable[[str], bool] = bool,
    ) -> None:
        self._out = out
        self._may_call = may_call
        self._separator = separator
        self._brackets = brackets
        self._inside = not brackets
        self._ready = not brackets  # a call may follow
        self._call: JsonCall | None = None
        self._open = False
        self._between = opening  # read since the last call
        self._wrong = False  # what has been read last is no part of a call
        self.begun = False

    @property
    def held(self) -> str:
        """See ``Block``."""
        return self._between + (self._call.held if self._call is not None else "")

    def feed(self, lexeme: Lexeme) -> Reading:
        """See ``Block``."""
        if lexeme.marker and not (self._call is not None and self._call.in_string):
            return Reading.UNREAD
        text = lexeme.text
        while text:
            if self._call is None and self._ready and text[0] == "{":
                self._call = JsonCall(self._out, self._may_call)
            if self._call is not None:
                text = text[self._call.feed(text) :]
                if not self._note(self._call):
                    return self._go_wrong(text)
            elif self._frame(text[0]):
                self._between += text[0]
                text = text[1:]
            elif self.begun and self._inside and self._brackets and text[0] == "]":
                self._between, self._wrong = text[1:], True
                return Reading.OVER
            else:
                return self._go_wrong(text)
        return Reading.MORE

    def _go_wrong(self, text: str) -> Reading:
        self._between = self.held + text
        self._call = None
        self._wrong = True
        return Reading.OVER

    def _note(self, call: JsonCall) -> bool:
        """Take note of how a call stands; False: it is none, or goes on as none."""
        if call.begun and not self._open:
            self.begun = self._open = True
            self._between = ""
        if call.closed:
            self._out.end()
            self._open = self._ready = False
            self._call = None
        return not call.fault

    def _frame(self, char: str) -> bool:
        """Whether a character may stand between calls here."""
        if char == "[" and not self._inside:
            self._inside = self._ready = True
            return True
        if char == self._separator and self.begun and not self._ready:
            self._ready = True
            return True
        return char.isspace()

    def close(self) -> None:
        """See ``Block``."""
        if self._open:
            self._out.end()
        if self.begun and not self._wrong and not self.held.strip(FRAME + self._separator):
            self._between, self._call = "", None


@dataclass(frozen=True, slots=True)
class CallFrame:
    """The text around a call's arguments, and around several calls of one answer."""

    before: str
    after: str
    again: str | None = None
    """What stands before the arguments of a call that follows another; None: none does."""
    end: str = ""
    """What stands behind the last call."""
    fields: Fields | None = None
    """How arguments are written where that is not as JSON."""


def json_frame(name: str, arguments: str) -> tuple[str, str]:
    """Return what stands before and after arguments in a JSON call, which ``begun_json`` begins."""
    return begun_json(name, arguments) + " ", "}"


def begun_json(name: str | None, arguments: str) -> str:
    """Return the beginning of a JSON call; ``arguments`` is the key that the family uses."""
    if name is None:
        return '{"name":'
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{arguments}":'


def tool_name(tool: Json) -> str:
    """Return the name of a tool's definition; empty where it has none."""
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""
