"""Token ids to text while they arrive, and stop strings in that text.

Both give results that do not depend on how the input was cut: a stream's text, joined, equals the
decoding of all its ids at once, and stop strings match across any border. (One exception: where a
model emits invalid UTF-8, tokenizers that are not byte-level may write it differently.)
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Protocol

from tokenizers import Tokenizer, decoders

from rejoinder.chat.token_bytes import TokenBytes

REPLACEMENT = "\ufffd"
"""What incomplete or invalid UTF-8 becomes."""
_MOST_HELD = 16
"""Ids that can hardly be one incomplete character (4 bytes): their text is given out as it is."""


class IncrementalDetokenizer(Protocol):
    """The text of one growing sequence of ids. Made by ``Detokenizer.stream``."""

    def feed(self, ids: Sequence[int]) -> str:
        """Take ids; return the text that no later id can change (may be empty)."""
        ...

    def finish(self) -> str:
        """Return the text held back; an incomplete character becomes U+FFFD.

        The sequence may go on: what follows is inner text, not a beginning.
        """
        ...


class Detokenizer:
    """Makes detokenizers of one tokenizer and holds what they share. Not thread-safe."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        byte_level = isinstance(tokenizer.decoder, decoders.ByteLevel)
        self._token_bytes = _shown_bytes(tokenizer, skip_special_tokens) if byte_level else None

    def stream(self) -> IncrementalDetokenizer:
        """Return a detokenizer at the start of a sequence."""
        if self._token_bytes is not None:
            return _ByteStream(self._token_bytes)
        return _WindowStream(self._tokenizer, self._skip_special_tokens)


def _shown_bytes(tokenizer: Tokenizer, skip_special_tokens: bool) -> TokenBytes:  # noqa: FBT001
    """Return the bytes that each id adds to a text; none for special tokens that are skipped."""
    shown = TokenBytes(tokenizer)
    if skip_special_tokens:
        added = tokenizer.get_added_tokens_decoder()
        shown.update({id_: b"" for id_, token in added.items() if token.special})
    return shown


class _ByteStream:
    """Byte-level tokenizers: token bytes through an incremental UTF-8 decoder (about 1 us)."""

    __slots__ = ("_decoder", "_token_bytes")

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Sequence[int]) -> str:
        token_bytes = self._token_bytes
        return self._decoder.decode(b"".join([token_bytes[id_] for id_ in ids]))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _WindowStream:
    """Any tokenizer: the difference between two decodings of the last few ids.

    A window starts at ids whose text has been given out, so that decoders which treat the first
    token apart (dropping its leading space) treat the new ones as inner tokens.
    """

    __slots__ = ("_given", "_ids", "_skip", "_tokenizer", "_window")

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:  # noqa: FBT001
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._ids: list[int] = []
        self._window = 0  # where the window starts in _ids
        self._given = 0  # ids whose text has been given out

    def feed(self, ids: Sequence[int]) -> str:
        parts: list[str] = []
        for id_ in ids:
            self._ids.append(id_)
            text, before = self._texts()
            whole = not text.endswith(REPLACEMENT)
            most = len(self._ids) - self._given >= _MOST_HELD
            if len(text) > len(before) and (whole or most):
                parts.append(text[len(before) :])
                self._window, self._given = self._given, len(self._ids)
            elif most:
                # Special tokens, which have no text: a window that kept them would grow for ever.
                del self._ids[self._given :]
        return "".join(parts)

    def finish(self) -> str:
        text, before = self._texts()
        if len(self._ids) > self._given:
            self._window, self._given = self._given, len(self._ids)
        return text[len(before) :]

    def _texts(self) -> tuple[str, str]:
        """Return the window's text, and its text up to what has been given out."""
        return (
            self._tokenizer.decode(self._ids[self._window :], skip_special_tokens=self._skip),
            self._tokenizer.decode(
                self._ids[self._window : self._given], skip_special_tokens=self._skip
            ),
        )


class StopMatcher:
    """Finds the first of several stop strings in a stream of text and holds back what may be one.

    The match that ends first counts; of two that end together, the longer one.
    """

    __slots__ = ("_held", "_longest", "_stops", "matched")

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.matched: str | None = None
        """The stop string that was found."""

    def feed(self, text: str) -> str:
        """Take text; return what is certainly before any stop string. Nothing after a match."""
        if not self._stops:
            return text
        if self.matched is not None:
            return ""
        text = self._held + text
        found = self._first_match(text)
        if found is not None:
            start, self.matched = found
            self._held = ""
            return text[:start]
        safe = len(text) - self._partial_match(text)
        self._held = text[safe:]
        return text[:safe]

    def finish(self) -> str:
        """Return the text held back: the stream ended without completing a stop string."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> tuple[int, str] | None:
        hits = [(text.find(stop), stop) for stop in self._stops]
        ends = [(at + len(stop), at, stop) for at, stop in hits if at >= 0]
        return min(ends)[1:] if ends else None

    def _partial_match(self, text: str) -> int:
        """Return the length of the longest end of ``text`` that begins a stop string."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[-size:]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0
