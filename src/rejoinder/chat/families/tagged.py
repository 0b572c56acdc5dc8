"""Answers whose thoughts and calls stand between markers: what most families have in common.

Thoughts come first, after an opening marker that the answer begins with or the prompt ends with.
Calls come in blocks. A block reads what follows its opening marker for as long as that is a call,
and returns as text what turns out to be none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from rejoinder.chat.families.events import ContentDelta, EventWriter, ReasoningDelta, TextDelta
from rejoinder.chat.families.lexer import Lexeme


class Reading(Enum):
    """What a block says of a lexeme."""

    MORE = auto()
    """It was read, and the block goes on."""
    OVER = auto()
    """It was read, and the block is over."""
    UNREAD = auto()
    """It is no part of the block, which is over."""


class Block(Protocol):
    """Reads one or more calls."""

    @property
    def held(self) -> str:
        """Text, markers included, that is no part of a call so far."""
        ...

    @property
    def begun(self) -> bool:
        """A call has begun."""
        ...

    @property
    def awaits(self) -> str | None:
        """A marker that will still close the block after text that is no part of it."""
        ...

    def feed(self, lexeme: Lexeme) -> Reading:
        """Read a lexeme."""
        ...

    def close(self) -> None:
        """End a call that is open: the block is over, or the answer is."""
        ...


@dataclass(frozen=True, slots=True)
class TagRules:
    """What one family does."""

    thoughts: tuple[str, str]
    """The markers around them."""
    calls_end_thoughts: bool
    """A call among thoughts that nobody has closed is a real one; else it is a draft."""


class TaggedParser:
    """Reads one answer."""

    def __init__(
        self,
        out: EventWriter,
        rules: TagRules,
        open_block: Callable[[str], Block | None],
        *,
        thinking: bool,
        bare_block: Callable[[], Block] | None = None,
    ) -> None:
        """Begin an answer.

        Args:
            out: where its events go.
            rules: of the family.
            open_block: returns the block that a marker opens, if it opens one.
            thinking: the prompt has opened thoughts.
            bare_block: returns the block that an answer is which begins with "{".
        """
        self._out = out
        self._think, self._answer = rules.thoughts
        self._calls_end_thoughts = rules.calls_end_thoughts
        self._open_block = open_block
        self._bare_block = bare_block
        self._kind: TextDelta = ReasoningDelta if thinking else ContentDelta
        self._lead: str | None = None if thinking else ""  # white space the answer begins with
        self._block: Block | None = None
        self._awaits: str | None = None
        if thinking:
            out.turn(ReasoningDelta)

    def feed(self, lexemes: Iterable[Lexeme]) -> None:
        """Read on."""
        for lexeme in lexemes:
            self._read(lexeme)

    def finish(self) -> None:
        """The answer is over."""
        if self._block is not None:
            self._leave()
        self._flush_lead()

    def _read(self, lexeme: Lexeme) -> None:
        if self._block is not None:
            reading = self._block.feed(lexeme)
            if reading is not Reading.MORE:
                self._leave()
            if reading is not Reading.UNREAD:
                return
        if lexeme.marker:
            self._read_marker(lexeme)
        elif self._lead is not None:
            self._read_start(lexeme.text)
        else:
            self._out.text(self._kind, lexeme.text)

    def _read_marker(self, lexeme: Lexeme) -> None:
        marker = lexeme.text
        if marker == self._awaits:
            self._awaits = None
        elif marker == self._think and self._lead is not None:
            self._lead = None
            self._turn(ReasoningDelta)
        elif marker == self._answer and self._kind is ReasoningDelta:
            self._turn(ContentDelta)
        else:
            self._flush_lead()
            self._awaits = None
            if self._kind is ContentDelta or self._calls_end_thoughts:
                self._block = self._open_block(marker)
            if self._block is None:
                self._out.text(self._kind, marker)

    def _read_start(self, text: str) -> None:
        said = text.lstrip()
        self._lead = (self._lead or "") + text[: len(text) - len(said)]
        if said.startswith("{") and self._bare_block is not None:
            self._flush_lead()
            self._block = self._bare_block()
            self._read(Lexeme(said))
        elif said:
            self._flush_lead()
            self._out.text(self._kind, said)

    def _flush_lead(self) -> None:
        lead, self._lead = self._lead, None
        if lead:
            self._out.text(self._kind, lead)

    def _turn(self, kind: TextDelta) -> None:
        self._kind = kind
        self._out.turn(kind)

    def _leave(self) -> None:
        block, self._block = self._block, None
        assert block is not None, "no block to leave"
        block.close()
        if block.begun:
            self._kind = ContentDelta
        self._awaits = block.awaits
        if block.held:
            self._out.text(self._kind, block.held)
