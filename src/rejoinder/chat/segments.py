"""Tokenising prompts piece by piece, so that what was tokenised before is not tokenised again.

A tokenizer takes special tokens out of a text first and tokenises what lies between them on its
own. So a text may be cut at special tokens, and the ids of the pieces, joined, are the ids of the
whole. Agents resend long histories with every request; only their last messages are new.

The cut is made only where it is exact: at special tokens that neither swallow white space around
them nor overlap other added tokens, and only for tokenizers that treat all pieces alike.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass

from tokenizers import AddedToken

from rejoinder.models.tokenizer import ModelTokenizer

MAX_CHARS = 8 << 20
"""Text that the cache may stand for; ids take up to about 3 bytes per character of it."""
MAX_PIECES = 16_384


@dataclass(frozen=True, slots=True)
class Pieces:
    """A text cut at special tokens: text, special token, text, ..."""

    parts: list[str]
    unknown_chars: int
    """Characters that the cache did not know: the work left to do."""


class SegmentTokenizer:
    """Text to ids through a cache of pieces. Safe from any thread."""

    def __init__(
        self, tokenizer: ModelTokenizer, max_chars: int = MAX_CHARS, max_pieces: int = MAX_PIECES
    ) -> None:
        self._tokenizer = tokenizer.tokenizer
        self._max_chars = max_chars
        self._max_pieces = max_pieces
        self._cache: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._chars = 0
        self._lock = threading.Lock()
        # One object per id for all pieces: that takes 8 bytes an id, not 36. And pieces are
        # tuples, because the garbage collector does not go through tuples of numbers again.
        self._ids = list(range(tokenizer.vocab_size))
        self.boundaries = exact_boundaries(tokenizer)
        pattern = "|".join(re.escape(token) for token in self.boundaries)
        self._cut = re.compile(f"({pattern})") if pattern else None

    def cut(self, text: str) -> Pieces:
        """Cut a text and count what is left to do; cheap enough for an event loop."""
        parts = self._cut.split(text) if self._cut is not None else [text]
        cache = self._cache
        unknown = sum(len(part) for part in parts[::2] if part and part not in cache)
        return Pieces(parts, unknown)

    def encode(self, pieces: Pieces) -> list[int]:
        """Return the ids of the text; unknown parts release the interpreter lock."""
        parts = pieces.parts
        with self._lock:
            known = {part: self._find(part) for part in set(parts[::2]) if part}
        missing = [part for part, ids in known.items() if ids is None]
        if missing:
            known.update(self._tokenise(missing))
        ids: list[int] = []
        for index, part in enumerate(parts):
            if index % 2:
                ids.append(self.boundaries[part])
            elif part:
                ids += known[part] or ()
        return ids

    def _find(self, part: str) -> tuple[int, ...] | None:
        ids = self._cache.get(part)
        if ids is not None:
            self._cache.move_to_end(part)
        return ids

    def _tokenise(self, parts: list[str]) -> dict[str, tuple[int, ...]]:
        table = self._ids
        # encode() would hold the interpreter lock all the time, and count characters for nobody.
        encodings = self._tokenizer.encode_batch_fast(parts, add_special_tokens=False)
        made = {
            part: tuple([table[id_] for id_ in encoding.ids])
            for part, encoding in zip(parts, encodings, strict=True)
        }
        with self._lock:
            for part, ids in made.items():
                self._keep(part, ids)
        return made

    def _keep(self, part: str, ids: tuple[int, ...]) -> None:
        if part in self._cache or len(part) > self._max_chars:
            return
        self._cache[part] = ids
        self._chars += len(part)
        while self._chars > self._max_chars or len(self._cache) > self._max_pieces:
            oldest, _ = self._cache.popitem(last=False)
            self._chars -= len(oldest)


def exact_boundaries(tokenizer: ModelTokenizer) -> dict[str, int]:
    """Return the special tokens (text to id) at which cutting a text changes no id.

    Empty where the tokenizer treats the first piece of a text apart from the others.
    """
    if _first_piece_is_special(json.loads(tokenizer.tokenizer.to_str())):
        return {}
    added: dict[int, AddedToken] = tokenizer.tokenizer.get_added_tokens_decoder()
    texts = [token.content for token in added.values()]
    return {
        token.content: id_
        for id_, token in added.items()
        if token.special
        and not (token.normalized or token.lstrip or token.rstrip or token.single_word)
        and not any(_overlap(token.content, other) for other in texts)
    }


def _first_piece_is_special(settings: object) -> bool:
    """Whether any component treats the start of a text apart (Metaspace with ``first``)."""
    if isinstance(settings, dict):
        if settings.get("type") == "Metaspace" and settings.get("prepend_scheme") == "first":
            return True
        inner: list[object] = [
            settings.get(name)
            for name in ("pre_tokenizer", "normalizer", "pretokenizers", "normalizers")
        ]
        return any(map(_first_piece_is_special, inner))
    if isinstance(settings, list):
        return any(map(_first_piece_is_special, settings))
    return False


def _overlap(token: str, other: str) -> bool:
    """Whether occurrences of two added tokens can share characters, so that one hides the other."""
    if token != other and token in other:
        return True
    sizes = range(1, min(len(token), len(other)))
    return any(token[-size:] == other[:size] or other[-size:] == token[:size] for size in sizes)
