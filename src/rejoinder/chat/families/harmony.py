"""gpt-oss: messages on channels (the *harmony* format).

``<|channel|>analysis<|message|>`` begins thoughts, ``final`` the answer, ``commentary`` with a
recipient a call (``to=functions.weather``) and without one what is said to the user before a call.
Messages end with ``<|end|>``, ``<|call|>`` or ``<|return|>``; the next begins with ``<|start|>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rejoinder.chat.families.blocks import CallFrame
from rejoinder.chat.families.events import ContentDelta, EventWriter, ReasoningDelta, TextDelta
from rejoinder.chat.families.lexer import Lexeme
from rejoinder.types import Json

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = (START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS)

_HEADER = re.compile(
    r"(?:<\|start\|> ?assistant)? ?(?:to=(?P<early>[^ <]+))? ?"
    r"<\|channel\|> ?(?P<channel>analysis|commentary|final) ?"
    r"(?:to=(?P<late>[^ <]+))? ?(?:<\|constrain\|>)? ?[a-z]*"
)
"""Each space stands for white space of any length."""
_EARLY = re.compile(r"\s*(?:t(?:o(?:=[^\s<]*\s*)?)?)?")
"""What a header before its first marker may be, as far as it has come."""
_BREAKING = frozenset((START, CHANNEL, *ENDS))
_PARAGRAPH = "\n\n"
"""Between two messages of one kind."""
_FUNCTIONS = "functions."
_NOBODY = frozenset((None, "assistant", "user"))
_LONGEST_HEADER = 512
"""Characters; what is longer is no header, and need not be held back."""

BEGIN_CONTENT = f"{CHANNEL}final{MESSAGE}"
"""With it content begins."""


def begin_call(name: str | None, template: str) -> str:
    """Return the text with which a call begins; see ``BeginCall``."""
    del template  # one form for all
    opening = f"{CHANNEL}commentary to="
    if name is None:
        return opening + _FUNCTIONS.rstrip(".")
    return f"{opening}{_FUNCTIONS}{name} {CONSTRAIN}json{MESSAGE}"


def frame_call(name: str, template: str) -> CallFrame:
    """Return what stands around the arguments of a call; see ``FrameCall``."""
    return CallFrame(begin_call(name, template), "")  # what ends it is a token that ends answers


class HarmonyParser:
    """Reads one answer."""

    def __init__(self, out: EventWriter, tools: Sequence[Json]) -> None:
        self._out = out
        self._tools = bool(tools)
        self._header: str | None = ""  # None: a message's body is read
        self._kind: TextDelta = ContentDelta
        self._said: set[TextDelta] = set()
        self._call_open = False
        self._called: tuple[str, str] | None = None  # header and name, until arguments come

    def feed(self, lexemes: Iterable[Lexeme]) -> None:
        """Read on."""
        for lexeme in lexemes:
            if self._header is None:
                self._read_body(lexeme)
            else:
                self._read_header(self._header, lexeme)

    def finish(self) -> None:
        """The answer is over."""
        if self._called is not None:  # cut before its arguments, which may not be none
            self._header, self._called = self._called[0], None
        self._end_message()
        self._give_up("")

    def _read_header(self, header: str, lexeme: Lexeme) -> None:
        text = lexeme.text
        if not lexeme.marker:
            self._header = header + text
            # Without a marker before it, only a recipient can be part of a header.
            if not (CHANNEL in header or START in header or _EARLY.fullmatch(self._header)) or (
                len(self._header) > _LONGEST_HEADER
            ):
                self._give_up("")
        elif text == MESSAGE:
            if not self._begin_message(header):
                self._give_up(text)
        elif text == START and header:
            self._give_up("")
            self._header = text
        elif text in ENDS:
            self._give_up("")
            self._header = ""
        else:
            self._header = header + text

    def _begin_message(self, header: str) -> bool:
        # Runs of white space are made one space first: several patterns for them side by side
        # would try every way of sharing a long run among themselves.
        found = _HEADER.fullmatch(" ".join(header.split()))
        if found is None:
            return False
        recipient = found["early"] or found["late"]
        if found["early"] and found["late"]:
            return False
        if recipient not in _NOBODY:
            if not self._tools:
                return False
            self._called = header + MESSAGE, recipient.removeprefix(_FUNCTIONS)
        else:
            self._kind = ReasoningDelta if found["channel"] == "analysis" else ContentDelta
            if self._kind in self._said:
                self._out.text(self._kind, _PARAGRAPH)
        self._header = None
        return True

    def _read_body(self, lexeme: Lexeme) -> None:
        text = lexeme.text
        if lexeme.marker and text in _BREAKING:
            self._begin_call("{}")
            self._end_message()
            self._header = "" if text in ENDS else text
        elif self._called is not None:
            self._begin_call(text)
        elif self._call_open:
            self._out.arguments(text)
        else:
            self._said.add(self._kind)
            self._out.text(self._kind, text)

    def _begin_call(self, arguments: str) -> None:
        """Begin the call whose header has been read, if one has been."""
        if self._called is not None:
            self._out.begin(self._called[1])
            self._out.arguments(arguments)
            self._called, self._call_open = None, True

    def _end_message(self) -> None:
        if self._call_open:
            self._out.end()
            self._call_open = False
        self._kind = ContentDelta

    def _give_up(self, more: str) -> None:
        """What has been held as a header is content, and so is what follows."""
        text = (self._header or "") + more
        self._header = None
        if text:
            self._said.add(self._kind)
            self._out.text(self._kind, text)
