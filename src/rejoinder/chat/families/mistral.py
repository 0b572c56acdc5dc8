"""Mistral: ``[TOOL_CALLS]`` before a JSON list, or before ``name[ARGS]{...}`` for each call.

The list is the form of the older tokenizers (v3, v7); the other one, with or without ``[CALL_ID]``
and ``[ARGS]``, that of v11 and later. Reasoning models think between ``[THINK]`` and ``[/THINK]``.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Sequence

from rejoinder.chat.families.blocks import CallFrame, CallList, EitherBlock, begun_json, json_frame
from rejoinder.chat.families.events import EventWriter
from rejoinder.chat.families.json_call import Balanced
from rejoinder.chat.families.lexer import Lexeme
from rejoinder.chat.families.tagged import Block, Reading, TaggedParser, TagRules
from rejoinder.types import Json

THOUGHTS = ("[THINK]", "[/THINK]")
CALLS, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
MARKERS = (CALLS, CALL_ID, ARGS)
RULES = TagRules(THOUGHTS, calls_end_thoughts=False)

_ARGUMENTS = "arguments"
_NAME = re.compile(r"[\w./:-]+")
_ID = re.compile(r"[A-Za-z0-9_-]*")
_ARGS = re.compile("")
_NEXT = {_NAME: (CALL_ID, ARGS), _ID: (ARGS,)}
"""The parts of a call before its arguments, and the markers that may follow each."""
_LETTERS = string.ascii_letters + string.digits


def call_id() -> str:
    """Return an id in the only form that the family's templates take: nine letters or digits."""
    return "".join(secrets.choice(_LETTERS) for _ in range(9))


def parser(out: EventWriter, tools: Sequence[Json], *, thinking: bool) -> TaggedParser:
    """Return the parser of one answer."""

    def open_block(marker: str) -> Block | None:
        if not tools or marker != CALLS:
            return None
        return EitherBlock(
            CallList(out, CALLS, ",", brackets=True),
            _NamedCall(out),
            lambda lexeme: not lexeme.marker and lexeme.text.lstrip().startswith("["),
        )

    return TaggedParser(out, RULES, open_block, thinking=thinking)


def begin_call(name: str | None, template: str) -> str:
    """Return the text with which a call begins; see ``BeginCall``."""
    if name is None:
        return CALLS  # what follows tells the versions apart
    if ARGS in template:
        return f"{CALLS}{name}{ARGS}"
    return f"{CALLS}[{begun_json(name, _ARGUMENTS)}"


def frame_call(name: str, template: str) -> CallFrame:
    """Return what stands around the arguments of a call; see ``FrameCall``."""
    if ARGS in template:
        begun = begin_call(name, template)
        return CallFrame(begun, "", begun)
    before, after = json_frame(name, _ARGUMENTS)
    return CallFrame(f"{CALLS}[{before}", after, f", {before}", "]")


class _NamedCall:
    """``name[CALL_ID]id[ARGS]{...}``, without what is in brackets in some versions."""

    awaits: str | None = None

    def __init__(self, out: EventWriter) -> None:
        self._out = out
        self._scan = Balanced()
        self._parts = {_NAME: "", _ID: "", _ARGS: ""}
        self._at = _NAME
        self.held = CALLS
        self.begun = False

    def feed(self, lexeme: Lexeme) -> Reading:
        """See ``Block``."""
        text = lexeme.text
        if self.begun:
            return self._arguments(text) if self._takes(lexeme) else Reading.UNREAD
        if lexeme.marker:
            if text not in _NEXT.get(self._at, ()):
                return Reading.UNREAD
            self._at = _ID if text == CALL_ID else _ARGS
            self.held += text
            return Reading.MORE
        head, brace, _ = text.partition("{")
        self._parts[self._at] += head
        self.held += head
        if not brace:
            return Reading.MORE
        if any(not form.fullmatch(part.strip()) for form, part in self._parts.items()):
            self.held += text[len(head) :]
            return Reading.OVER
        self.held = ""
        self.begun = True
        self._out.begin(self._parts[_NAME].strip(), self._parts[_ID].strip())
        return self._arguments(text[len(head) :])

    def _takes(self, lexeme: Lexeme) -> bool:
        return not lexeme.marker or self._scan.in_string

    def _arguments(self, text: str) -> Reading:
        end = self._scan.feed(text)
        self._out.arguments(text[:end])
        self.held = text[end:]
        return Reading.OVER if self._scan.complete else Reading.MORE

    def close(self) -> None:
        """See ``Block``."""
        if self.begun:
            self._out.end()
