"""Words of a text: tokenising, light stemming, and which words carry a topic.

Everything here is plain string work on English text, so that a rule built on it shares nothing
with any language model or judge.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SENTENCE = re.compile(r".+?(?:[.!?…]++[\"'”’)\]]*+(?=\s|$)|$)")
_VOWEL = re.compile(r"[aeiouy]")


_IRREGULAR = {
    "ate": "eat", "bought": "buy", "children": "child", "drawn": "draw", "drove": "drive",
    "feet": "foot", "fell": "fall", "flew": "fly", "flies": "fly", "flight": "fly", "flown": "fly",
    "grew": "grow", "grown": "grow", "leaves": "leaf", "lent": "lend", "lost": "lose", "men": "man",
    "mice": "mouse", "paid": "pay",
    "party": "parti", "parties": "parti", "people": "person", "sang": "sing", "sold": "sell",
    "spent": "spend", "stole": "steal", "stolen": "steal", "swam": "swim", "taught": "teach",
    "teeth": "tooth", "theft": "steal", "thieves": "steal", "thief": "steal", "women": "woman",
    "wore": "wear", "worn": "wear", "written": "write", "wrote": "write", "slept": "sleep",
    "built": "build", "knives": "knife", "wives": "wife", "shelves": "shelf", "dying": "die",
}  # fmt: skip
_SUFFIXES = (
    "iness",
    "iest",
    "ier",
    "ations",
    "ation",
    "ings",
    "ing",
    "ers",
    "edly",
    "ed",
    "er",
    "est",
    "ly",
    "y",
)


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, lower case; an apostrophe or hyphen stays inside."""
    if text.isascii():  # most are, and this is asked ten times for each answer
        return _WORD.findall(text.lower())
    return [word.lower().replace("’", "'") for word in _WORD.findall(text)]


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text; line ends separate too."""
    found = (_SENTENCE.findall(line) for line in text.splitlines())
    return [sentence.strip() for line in found for sentence in line if sentence.strip()]


@cache
def stem(word: str) -> str:
    """Return a rough stem: plural, tense and adverb endings go, so that forms of a word meet.

    It only has to be the same for forms of one word, not to be a word itself.
    """
    word = word.removesuffix("'s").removesuffix("'")
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("ches", "shes", "sses", "xes", "zes", "oes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            cut = word[: -len(suffix)]
            if _VOWEL.search(cut):
                word = _undouble(cut)
                break
    return word.removesuffix("e") if len(word) > 3 else word


def _undouble(word: str) -> str:
    """``runn`` becomes ``run``; ``ll`` and ``ss`` stay, as in ``tell`` and ``pass``."""
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz"
    return word[:-1] if doubled else word


def content_words(text: str) -> list[str]:
    """Return the words that carry a topic, in order, as they were written (lower case)."""
    parts = (part for word in words_of(text) for part in _parts(word))
    return [word for word in parts if word not in stopwords() and len(word) > 1]


def content_stems(text: str) -> set[str]:
    """Return the stems of the words that carry a topic."""
    return {stem(word) for word in content_words(text)}


def _parts(word: str) -> list[str]:
    """A compound counts by its parts: ``credit-card`` meets ``card``."""
    return word.split("-") if "-" in word else [word]


@cache
def stopwords() -> frozenset[str]:
    """Return the words that carry no topic, from the list ``stopwords.txt``."""
    return frozenset(word for line in _lines_of("stopwords.txt") for word in line.split())


@cache
def vague_words() -> frozenset[str]:
    """Return the words that fit any question, from the list ``vague.txt``.

    As they are written: the stem of "caring" is that of "car".
    """
    return frozenset(word for line in _lines_of("vague.txt") for word in line.split())


@cache
def related_stems() -> dict[str, frozenset[str]]:
    """Return, for each stem of the table ``related.txt``, the stems that stand for it too."""
    table: dict[str, set[str]] = {}
    for line in _lines_of("related.txt"):
        heads, _, others = line.partition(":")
        related = {stem(word) for word in f"{heads} {others}".split()}
        for head in heads.split():
            table.setdefault(stem(head), set()).update(related)
    return {head: frozenset(related) for head, related in table.items()}


def _lines_of(name: str) -> list[str]:
    text = resources.files("rejoinder.evaluation.wordlists").joinpath(name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
