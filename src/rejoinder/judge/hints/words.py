"""Words of English text, their rough stems, and the lists that say which are about manner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_SENTENCE = re.compile(r".+?(?:[.!?…]++[\"'”’)]*+(?=\s|$)|$)")
_SUFFIXES = ("ing", "ed", "ly", "y", "e")
_SHORTEST = 3
"""Letters that a stem keeps."""


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, lower case; hyphens separate, apostrophes do not."""
    return [word.lower().replace("’", "'") for word in _WORD.findall(text)]


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text; line ends separate too."""
    found = (_SENTENCE.findall(line) for line in text.splitlines())
    return [sentence.strip() for line in found for sentence in line if sentence.strip()]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Return a rough stem, the same for most forms of one word; it need not be a word itself."""
    word = word.removesuffix("'s")
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > _SHORTEST:
        word = word[:-1]
    while (shorter := _without_suffix(word)) != word:
        word = shorter
    return word


def _without_suffix(word: str) -> str:
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST:
            cut = word[: -len(suffix)]
            doubled = len(cut) > _SHORTEST and cut[-1] == cut[-2] and cut[-1] not in "lsz"
            return cut[:-1] if doubled else cut
    return word


@cache
def plain_stems() -> frozenset[str]:
    """Return the stems of words that tell nothing, from ``plain_words.txt``."""
    return _stems_of("plain_words.txt")


@cache
def manner_stems() -> frozenset[str]:
    """Return the stems of words about manner and form, from ``manner_words.txt``."""
    return _stems_of("manner_words.txt")


def _stems_of(name: str) -> frozenset[str]:
    return frozenset(stem(word) for line in _lines_of(name) for word in words_of(line))


def _lines_of(name: str) -> Iterator[str]:
    text = (files("rejoinder.judge.hints") / "data" / name).read_text("utf-8")
    return (line for line in text.splitlines() if not line.startswith("#"))
