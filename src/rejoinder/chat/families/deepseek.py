"""DeepSeek V3 and R1: calls in one section, each between markers of its own.

V3 and R1 write ``function<sep>name``, a line break and the arguments in a fence for JSON; V3.1
writes ``name<sep>{...}``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto

from rejoinder.chat.families.blocks import CallFrame
from rejoinder.chat.families.events import EventWriter
from rejoinder.chat.families.json_call import Balanced
from rejoinder.chat.families.lexer import Lexeme
from rejoinder.chat.families.tagged import Block, Reading, TaggedParser, TagRules
from rejoinder.types import Json

THOUGHTS = ("<think>", "</think>")
SECTION = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
CALL = ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>")
SEPARATOR = "<｜tool▁sep｜>"
MARKERS = (*SECTION, *CALL, SEPARATOR)
RULES = TagRules(THOUGHTS, calls_end_thoughts=False)

_TYPE = "function"
"""What V3 and R1 write before the separator."""
_FENCED = re.compile(r"\s*([^\s`{}]+)\s*```(?:json)?\s*")
_PLAIN = re.compile(r"\s*([^\s`{}]+)\s*")
_FENCE_OPEN = "```json"
_FENCE = "` \t\r\n"
"""What stands around arguments."""


def parser(out: EventWriter, tools: Sequence[Json], *, thinking: bool) -> TaggedParser:
    """Return the parser of one answer."""

    def open_block(marker: str) -> Block | None:
        return _Section(out) if tools and marker == SECTION[0] else None

    return TaggedParser(out, RULES, open_block, thinking=thinking)


def begin_call(name: str | None, template: str) -> str:
    """Return the text with which a call begins; see ``BeginCall``."""
    fenced = _FENCE_OPEN in template
    opening = SECTION[0] + CALL[0] + (_TYPE + SEPARATOR if fenced else "")
    if name is None:
        return opening
    return f"{opening}{name}\n{_FENCE_OPEN}\n" if fenced else f"{opening}{name}{SEPARATOR}"


def frame_call(name: str, template: str) -> CallFrame:
    """Return what stands around the arguments of a call; see ``FrameCall``."""
    fence = "\n```" if _FENCE_OPEN in template else ""
    begun = begin_call(name, template)
    again = ("\n" if fence else "") + begun.removeprefix(SECTION[0])
    return CallFrame(begun, fence + CALL[1], again, SECTION[1])


class _At(Enum):
    BETWEEN = auto()
    HEAD = auto()
    """Before the separator."""
    PRELUDE = auto()
    """Between it and the arguments."""
    ARGUMENTS = auto()


class _Section:
    """All calls of an answer."""

    def __init__(self, out: EventWriter) -> None:
        self._out = out
        self._at = _At.BETWEEN
        self._head = self._prelude = ""
        self._scan = Balanced()
        self.held = SECTION[0]
        self.begun = False
        self.awaits: str | None = None
        self._wrong = False  # what has been read last is no part of a call

    def feed(self, lexeme: Lexeme) -> Reading:
        """See ``Block``."""
        if lexeme.marker and not (self._at is _At.ARGUMENTS and self._scan.in_string):
            return self._read_marker(lexeme.text)
        if self._at is _At.ARGUMENTS:
            return self._read_arguments(lexeme.text)
        if self._at is _At.PRELUDE:
            return self._read_prelude(lexeme.text)
        self.held += lexeme.text
        if self._at is _At.HEAD:
            self._head += lexeme.text
        elif lexeme.text.strip():
            return self._go_wrong()
        return Reading.MORE

    def _go_wrong(self) -> Reading:
        self._wrong = True
        self.awaits = SECTION[1] if self.begun else None
        return Reading.OVER

    def _read_marker(self, marker: str) -> Reading:
        outside = self._at in (_At.BETWEEN, _At.ARGUMENTS)
        if marker == SECTION[1] and outside:
            self._end_call()
            self.held = "" if self.begun else self.held + marker
            return Reading.OVER
        if marker == CALL[0] and outside:
            self._end_call()
            self._at = _At.HEAD
            self._head = self._prelude = ""
        elif marker == SEPARATOR and self._at is _At.HEAD:
            self._at = _At.PRELUDE
        elif marker == CALL[1] and self._at is _At.ARGUMENTS:
            self._end_call()
            return Reading.MORE
        else:
            return Reading.UNREAD
        self.held += marker
        return Reading.MORE

    def _read_prelude(self, text: str) -> Reading:
        before, brace, _ = text.partition("{")
        self._prelude += before
        self.held += before
        if not brace:
            return Reading.MORE
        named = _PLAIN.fullmatch(self._head)
        if named is not None and named.group(1) == _TYPE and self._prelude.strip():
            named = _FENCED.fullmatch(self._prelude)
        elif self._prelude.strip():
            named = None
        if named is None:
            self.held += text[len(before) :]
            return self._go_wrong()
        self.held = ""
        self.begun = True
        self._at = _At.ARGUMENTS
        self._scan = Balanced()
        self._out.begin(named.group(1))
        return self._read_arguments(text[len(before) :])

    def _read_arguments(self, text: str) -> Reading:
        end = self._scan.feed(text)
        self._out.arguments(text[:end])
        self.held += text[end:]
        return self._go_wrong() if self.held.strip(_FENCE) else Reading.MORE

    def _end_call(self) -> None:
        if self._at is _At.ARGUMENTS:
            self._out.end()
            self._at = _At.BETWEEN
            self.held = ""

    def close(self) -> None:
        """See ``Block``."""
        held = self.held
        self._end_call()
        self.held = held if self._wrong or held.strip(_FENCE) else ""
