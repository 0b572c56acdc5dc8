"""What an answer is made of, piece by piece as it is sampled."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rejoinder.types import Message, ToolCall


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of what the answer says."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A tool call whose name is known; its arguments follow."""

    index: int
    """0, 1, ... among the answer's calls."""
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of the arguments' JSON text, as the model wrote it where its format is JSON."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """Nothing more belongs to a call. Its arguments may be cut off where the answer was."""

    index: int


AnswerEvent: TypeAlias = ContentDelta | ReasoningDelta | CallBegun | ArgumentsDelta | CallEnded
TextDelta: TypeAlias = type[ContentDelta] | type[ReasoningDelta]

_BREAKS = "\n"
"""Line breaks beside a marker belong to the format, which puts them back when it is rendered."""


def call_id() -> str:
    """Return a new id for a tool call."""
    return f"call_{secrets.token_hex(12)}"


class EventWriter:
    """Makes the events of one answer: numbers calls, joins deltas, trims what surrounds markers."""

    def __init__(self, new_id: Callable[[], str] = call_id) -> None:
        self._new_id = new_id
        self._events: list[AnswerEvent] = []
        self._calls = 0
        self._open: int | None = None
        self._held = ""  # line breaks that a marker may follow
        self._held_for: TextDelta = ContentDelta
        self._at_start = False  # the next line breaks follow a marker
        self._after_call = False

    def text(self, kind: TextDelta, text: str) -> None:
        """Add text; line breaks at its end wait for what follows."""
        if kind is not self._held_for:
            self._release()
            self._held_for = kind
        if self._at_start:
            text = text.lstrip(_BREAKS)
        text = self._held + text
        kept = text.rstrip(_BREAKS)
        self._held = text[len(kept) :]
        if kept:
            self._at_start = self._after_call = False
            self._add(kind, kept)

    def turn(self, kind: TextDelta) -> None:
        """Take note of a marker after which text of another kind begins."""
        self._held = ""
        self._held_for = kind
        self._at_start = True

    def begin(self, name: str, id_: str = "") -> None:
        """Begin a call; ``id_`` where the model gives it one."""
        self._held = ""
        self._at_start = False
        self._open = self._calls
        self._calls += 1
        self._events.append(CallBegun(self._open, id_ or self._new_id(), name))

    def arguments(self, text: str) -> None:
        """Add to the arguments of the open call."""
        assert self._open is not None, "arguments without a call"
        last = self._events[-1] if self._events else None
        if isinstance(last, ArgumentsDelta):
            self._events[-1] = ArgumentsDelta(last.index, last.text + text)
        elif text:
            self._events.append(ArgumentsDelta(self._open, text))

    def end(self) -> None:
        """End the open call."""
        assert self._open is not None, "an end without a call"
        self._events.append(CallEnded(self._open))
        self._open = None
        self._after_call = True

    def take(self) -> list[AnswerEvent]:
        """Return the events since the last call of this."""
        events, self._events = self._events, []
        return events

    def finish(self) -> list[AnswerEvent]:
        """Return the last events; line breaks after a last call belong to its format."""
        if self._after_call:
            self._held = ""
        self._release()
        return self.take()

    def _release(self) -> None:
        held, self._held = self._held, ""
        if held:
            self._add(self._held_for, held)

    def _add(self, kind: TextDelta, text: str) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, kind):
            self._events[-1] = kind(last.text + text)
        else:
            self._events.append(kind(text))


class AnswerParts:
    """An answer put together from its events."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[tuple[CallBegun, list[str]]] = []

    def add(self, event: AnswerEvent) -> None:
        """Take the next event."""
        match event:
            case ContentDelta(text):
                self._content.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case CallBegun():
                self._calls.append((event, []))
            case ArgumentsDelta(index, text):
                self._calls[index][1].append(text)
            case CallEnded():
                pass

    @property
    def content(self) -> str:
        """All content so far."""
        return "".join(self._content)

    @property
    def calls(self) -> bool:
        """Whether the answer calls a tool."""
        return bool(self._calls)

    def message(self) -> Message:
        """Return the answer as a message."""
        return Message(
            "assistant",
            self.content,
            tool_calls=tuple(
                ToolCall(call.id, call.name, "".join(arguments)) for call, arguments in self._calls
            ),
            reasoning="".join(self._reasoning) or None,
        )
