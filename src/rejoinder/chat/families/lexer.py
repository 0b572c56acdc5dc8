"""Ids to text and markers.

A marker is a word of a family's format, such as ``<tool_call>``. Where the tokenizer has a token
for it, only that token is the marker, however often its letters appear in ordinary text; where it
has none, the letters are, also when they come in several pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tokenizers import Tokenizer

from rejoinder.chat.detokenizer import Detokenizer, StopMatcher


class Lexeme(NamedTuple):
    """A piece of an answer."""

    text: str
    marker: bool = False
    """Whether ``text`` is a whole marker of the family."""


class Markers:
    """The markers of one family in one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, markers: Iterable[str]) -> None:
        added = {token.content: id_ for id_, token in tokenizer.get_added_tokens_decoder().items()}
        self.by_id = {added[marker]: marker for marker in markers if marker in added}
        self.written = tuple(marker for marker in markers if marker not in added)
        """Those that are written with ordinary tokens."""


class MarkerLexer:
    """The lexemes of one growing answer, up to a stop string."""

    def __init__(self, texts: Detokenizer, markers: Markers, stop: Sequence[str]) -> None:
        self._stream = texts.stream()
        self._by_id = markers.by_id
        self._cut = _StopCut(stop) if stop else None
        self._written = _WrittenMarkers(markers.written) if markers.written else None

    @property
    def stop_string(self) -> str | None:
        """The stop string that has been found, if one has: nothing follows."""
        return None if self._cut is None else self._cut.matched

    def feed(self, ids: Sequence[int]) -> list[Lexeme]:
        """Take ids; return what no later id can change."""
        made: list[Lexeme] = []
        start = 0
        for at, id_ in enumerate(ids):
            if id_ in self._by_id:
                made.append(Lexeme(self._stream.feed(ids[start:at]) + self._stream.finish()))
                made.append(Lexeme(self._by_id[id_], marker=True))
                start = at + 1
        made.append(Lexeme(self._stream.feed(ids[start:])))
        return self._refine(made)

    def finish(self) -> list[Lexeme]:
        """Return what was held back."""
        made = self._refine([Lexeme(self._stream.finish())])
        if self._cut is not None:
            rest = self._cut.finish()
            made += rest if self._written is None else self._written.feed(rest)
        if self._written is not None:
            made += self._written.finish()
        return [lexeme for lexeme in made if lexeme.text]

    def _refine(self, lexemes: list[Lexeme]) -> list[Lexeme]:
        if self._cut is not None:
            lexemes = self._cut.feed(lexemes)
        if self._written is not None:
            lexemes = self._written.feed(lexemes)
        return [lexeme for lexeme in lexemes if lexeme.text]


class _StopCut:
    """Ends lexemes where a stop string begins; it may reach over markers, or begin in one."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._matcher = StopMatcher(stop)
        self._waiting: list[Lexeme] = []
        self._released = 0  # characters of the waiting lexemes that are before any stop string

    @property
    def matched(self) -> str | None:
        return self._matcher.matched

    def feed(self, lexemes: Iterable[Lexeme]) -> list[Lexeme]:
        for lexeme in lexemes:
            self._waiting.append(lexeme)
            self._released += len(self._matcher.feed(lexeme.text))
        return self._out(last=self.matched is not None)

    def finish(self) -> list[Lexeme]:
        self._released += len(self._matcher.finish())
        return self._out(last=True)

    def _out(self, *, last: bool) -> list[Lexeme]:
        out: list[Lexeme] = []
        while self._waiting and self._released:
            text, marker = self._waiting[0]
            if len(text) <= self._released:
                out.append(self._waiting.pop(0))
            elif marker and not last:
                return out  # whole or not at all, as long as it may become whole
            else:
                out.append(Lexeme(text[: self._released]))
                self._waiting[0] = Lexeme(text[self._released :], marker=False)
            self._released -= len(out[-1].text)
        return out


class _WrittenMarkers:
    """Finds markers in text; of two that overlap the first counts, then the longer."""

    def __init__(self, markers: Sequence[str]) -> None:
        self._markers = sorted(markers, key=len, reverse=True)
        self._held = ""

    def feed(self, lexemes: Iterable[Lexeme]) -> list[Lexeme]:
        out: list[Lexeme] = []
        for lexeme in lexemes:
            if lexeme.marker:
                out += [*self.finish(), lexeme]
                continue
            text = self._held + lexeme.text
            while found := self._first(text):
                at, marker = found
                out += [Lexeme(text[:at]), Lexeme(marker, marker=True)]
                text = text[at + len(marker) :]
            safe = len(text) - self._begun(text)
            self._held = text[safe:]
            out.append(Lexeme(text[:safe]))
        return out

    def finish(self) -> list[Lexeme]:
        held, self._held = self._held, ""
        return [Lexeme(held)]

    def _first(self, text: str) -> tuple[int, str] | None:
        hits = [(text.find(marker), -len(marker), marker) for marker in self._markers]
        found = min((hit for hit in hits if hit[0] >= 0), default=None)
        return None if found is None else (found[0], found[2])

    def _begun(self, text: str) -> int:
        """Return the length of the longest end of ``text`` that begins a marker."""
        for size in range(min(len(self._markers[0]) - 1, len(text)), 0, -1):
            if any(marker.startswith(text[-size:]) for marker in self._markers):
                return size
        return 0
