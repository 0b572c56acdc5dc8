"""A tool call written as a JSON object, read while it is sampled.

``{"name": "weather", "arguments": {"city": "Paris"}}``, keys in any order; ``parameters`` is
``arguments`` by another name. The call begins when its name is known and its arguments have begun.
From then on the arguments pass through as they are written: whoever carries the call out parses
them, and learns from a fault in them more than from a call that was never made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum, auto

from rejoinder.chat.families.events import EventWriter

_IN_STRING = re.compile(r'["\\]')
_BETWEEN = re.compile(r'["{}\[\]]')
_SPACE = " \t\r\n"
_ARGUMENTS = frozenset(("arguments", "parameters"))
_LABELS = frozenset(("id", "type"))
"""Keys that say nothing about the call."""


class Balanced:
    """Finds the end of one JSON object by its brackets."""

    def __init__(self) -> None:
        self._depth = 0
        self._escaped = False
        self.in_string = False
        self.complete = False

    def feed(self, text: str, at: int = 0) -> int:
        """Read on from ``at``; return where the object ends, or the text does."""
        while at < len(text) and not self.complete:
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_IN_STRING if self.in_string else _BETWEEN).search(text, at)
            if found is None:
                return len(text)
            at = found.end()
            match found.group():
                case "\\":
                    self._escaped = True
                case '"':
                    self.in_string = not self.in_string
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    self.complete = self._depth == 0
        return at


class _At(Enum):
    OPEN = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    STRING = auto()
    ARGUMENTS = auto()
    AFTER = auto()
    CLOSED = auto()


class JsonCall:
    """Reads one call. Stops at the end of the object, or at what no call has there."""

    def __init__(self, out: EventWriter, may_call: Callable[[str], bool] = bool) -> None:
        """``may_call``: whether a name can be a tool's; one that cannot is a fault."""
        self._out = out
        self._may_call = may_call
        self._at = _At.OPEN
        self._string: list[str] = []  # the string that is being read, in quotes
        self._scan = Balanced()
        self._key: str | None = None  # None while a key is read
        self._name: str | None = None
        self._early = ""  # arguments before their name
        self._seen_arguments = False
        self.begun = False
        """The call has begun."""
        self.fault = False
        """What follows is no part of a call, and neither is ``held``."""
        self.held = ""
        """Text that has been read and is part of the call only if the object goes on as one."""

    @property
    def closed(self) -> bool:
        """The object is complete."""
        return self._at is _At.CLOSED

    @property
    def in_string(self) -> bool:
        """A string is open, so that even a marker is part of it."""
        if self._at is _At.ARGUMENTS:
            return self._scan.in_string
        return self._at is _At.STRING

    def feed(self, text: str) -> int:
        """Take text; return how many characters of it were read."""
        at = 0
        while at < len(text) and not (self.fault or self.closed):
            if self._at is _At.ARGUMENTS:
                at = self._read_arguments(text, at)
            elif self._at is _At.STRING:
                at = self._read_string(text, at)
            elif text[at] in _SPACE:
                self.held += text[at]
                at += 1
            elif self._step(text[at]):
                at += 1
            else:
                self.fault = True
        return at

    def _step(self, char: str) -> bool:
        """Take one character of the object's frame; False where it does not belong there."""
        match self._at, char:
            case _At.OPEN, "{":
                self._at = _At.KEY
            case (_At.KEY, '"') | (_At.VALUE, '"') if self._key not in _ARGUMENTS:
                self._string = []
                self._at = _At.STRING
                return bool(self._read_string(char, 0))
            case _At.COLON, ":":
                self._at = _At.VALUE
            case _At.VALUE, "{" if self._key in _ARGUMENTS and not self._seen_arguments:
                self._seen_arguments = True
                self._at = _At.ARGUMENTS
                self._begin_if_known()
                self._read_arguments(char, 0)
                return True
            case _At.AFTER, ",":
                self._at, self._key = _At.KEY, None
            case _At.AFTER, "}" if self._name is not None:
                self._end_object()
                return True
            case _:
                return False
        self.held += char
        return True

    def _read_arguments(self, text: str, at: int) -> int:
        end = self._scan.feed(text, at)
        if self.begun:
            self._out.arguments(text[at:end])
        else:
            self._early += text[at:end]
            self.held += text[at:end]
        if self._scan.complete:
            self._at = _At.AFTER
        return end

    def _read_string(self, text: str, at: int) -> int:
        start = at
        while at < len(text) and self._at is _At.STRING:
            char = text[at]
            at += 1
            if self._string and self._string[-1] == "\\":
                self._string[-1] += char  # one entry, so that it escapes nothing itself
                continue
            self._string.append(char)
            if char == '"' and len(self._string) > 1:
                self._at = _At.AFTER
        self.held += text[start:at]
        if self._at is _At.AFTER:
            self.fault = not self._take_string()
        return at

    def _take_string(self) -> bool:
        try:
            value = str(json.loads("".join(self._string)))
        except ValueError:
            return False
        if self._key is None:
            self._key, self._at = value, _At.COLON
            return value == "name" or value in _ARGUMENTS or value in _LABELS
        if self._key == "name":
            # Halves of surrogate pairs, which escapes can write, are not printable either.
            nameable = value.isprintable() and self._may_call(value)
            if self._name is not None or not value or not nameable:
                return False
            self._name = value
            if self._seen_arguments:
                self._begin_if_known()
        return True

    def _begin_if_known(self) -> None:
        if self._name is not None and not self.begun:
            self.begun = True
            self.held = ""
            self._out.begin(self._name)
            self._out.arguments(self._early)

    def _end_object(self) -> None:
        if not self.begun:  # a call without arguments
            self._early = "{}"
            self._begin_if_known()
        self.held = ""
        self._at = _At.CLOSED
