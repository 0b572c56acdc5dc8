"""The leak check: a hint may say how to answer, never what only the next state knows.

A teacher that reads the corrected result in its prompt teaches the policy to guess that result. So
a hint may use the words and numbers of the conversation before it and those of the answer; what is
new in it must come from closed lists of words about manner and form (``data/*.txt``). The lists are
English; a hint in another language is one of foreign words, and refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rejoinder.judge.hints.words import manner_stems, plain_stems, stem, words_of
from rejoinder.judge.transcript import content_of
from rejoinder.judge.untrusted import shorten
from rejoinder.types import Message

_COUNTING = words_of(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_NUMERALS = {word: str(value) for value, word in enumerate(_COUNTING)} | {
    "twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "seventy": "70",
    "eighty": "80", "ninety": "90", "hundred": "100", "thousand": "1000", "million": "1000000",
    "dozen": "12", "second": "2nd", "third": "3rd", "fourth": "4th", "fifth": "5th",
}  # fmt: skip
COPIED = 5
"""Words in a row that two texts do not share by chance."""
_UNITS = {
    stem(word)
    for word in words_of("sentence word line paragraph bullet step example section heading")
}
"""What may be counted in a hint: ``in two short sentences`` says nothing of the world."""
_BETWEEN = frozenset(words_of("or to and more full single separate"))
"""Beside words about manner and other numbers, what may stand between a number and its unit."""
_COPULA = frozenset(
    words_of("is are was were be equals has have had contains not it's that's there's")
)
"""``has 14 lines`` states a fact, ``in 14 lines`` does not; and *one* is a number after these."""
_REACH = 2
"""Words before a number in which that matters: ``has exactly 14 lines``."""
_LONGEST_KNOWN = 40_000
"""Characters of a conversation that are read, all messages together."""
_THOUSANDS = re.compile(r"(?<=\d)[,.\u202f](?=\d{3}(?!\d))")
_DECIMALS = re.compile(r"(?<=\d)[.,](?=\d)")


def leaked_words(hint: str, known: frozenset[str]) -> tuple[str, ...]:
    """Return the words and numbers of a hint that only the next state can have told.

    Args:
        hint: text of a hint.
        known: of the conversation up to the answer; see ``known_before``.
    """
    words = _words(hint)
    vocabulary = plain_stems() | manner_stems()
    found = []
    for index, word in enumerate(words):
        number = _number(words, index)
        if number is not None:
            if number not in known and not _counts_form(words, index):
                found.append(word)
        elif stem(word) not in known and stem(word) not in vocabulary:
            found.append(word)
    return tuple(dict.fromkeys(found))


def asks_for_length(text: str) -> bool:
    """Whether a text asks for a number of sentences, words or the like."""
    words = _words(text)
    numbers = (index for index in range(len(words)) if _number(words, index) is not None)
    return any(_counts_form(words, index) for index in numbers)


def copied_run(hint: str, messages: Sequence[Message]) -> str | None:
    """Return words of a hint that stand so in a message; None if all runs of them are short.

    What tools and assistants wrote never becomes hint text (rule 6), whatever a model makes of it.
    """
    words = words_of(hint)
    runs = {tuple(words[at : at + COPIED]) for at in range(len(words) - COPIED + 1)}
    if not runs:
        return None
    for message in messages:
        said = words_of(content_of(message))
        for at in range(len(said) - COPIED + 1):
            if (run := tuple(said[at : at + COPIED])) in runs:
                return " ".join(run)
    return None


def known_before(context: Sequence[Message], answer: Message) -> frozenset[str]:
    """Return the stems and numbers of what was said before the next state, the newest first.

    What lies further back than ``_LONGEST_KNOWN`` characters counts as unknown: a hint is refused
    then, never let through.
    """
    return _known(_newest((*context, answer)))


def _newest(messages: Sequence[Message]) -> Iterator[str]:
    left = _LONGEST_KNOWN
    for message in reversed(messages):
        if left <= 0:
            return
        text = shorten(content_of(message), left)
        left -= len(text)
        yield text


def _known(texts: Iterable[str]) -> frozenset[str]:
    words = [word for text in texts for word in _words(text)]
    return frozenset(stem(word) for word in words) | {_NUMERALS.get(word, word) for word in words}


def _words(text: str) -> list[str]:
    """Return the words; a number with separators is one: ``3.7`` is not known by its 7."""
    return words_of(_DECIMALS.sub("p", _THOUSANDS.sub("", text)))


def _number(words: Sequence[str], index: int) -> str | None:
    """Return the value of the word at ``index`` if it is a number that says something."""
    word = words[index]
    if word == "one" and not _stated(words, index):
        return None  # a pronoun
    return word if any(char.isnumeric() for char in word) else _NUMERALS.get(word)


def _stated(words: Sequence[str], index: int) -> bool:
    return not _COPULA.isdisjoint(words[max(0, index - _REACH) : index])


def _counts_form(words: Sequence[str], index: int) -> bool:
    """Whether a number says how many sentences, words or the like a hint asks for."""
    if _stated(words, index):
        return False
    for word in words[index + 1 :]:
        if stem(word) in _UNITS:
            return True
        counts_on = word in _BETWEEN or word in _NUMERALS or word.isnumeric()
        if not counts_on and stem(word) not in manner_stems():
            return False
    return False
