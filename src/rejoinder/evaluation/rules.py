"""Whether a text is an answer at all, whatever anyone's taste; and what its layout is.

Rules measure, and play people's taste; no judge ever sees them. They are strict on purpose: an
answer that is empty, cut, repeated or beside the point never passes, so that training cannot win by
collapsing.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from rejoinder.evaluation.text import (
    content_stems,
    content_words,
    related_stems,
    sentences_of,
    stem,
    vague_words,
    words_of,
)


class Flaw(StrEnum):
    """Why a text is no answer; one may have several."""

    EMPTY = "empty"
    CUT = "cut"
    """Ended by its token limit, or not at the end of a sentence."""
    REPETITIVE = "repetitive"
    """Says the same again: a sentence, a phrase, or few words over and over."""
    ECHO = "echo"
    """Says hardly more than the question did."""
    OFF_TOPIC = "off_topic"
    """About something else, or a refusal to answer."""
    BROKEN = "broken"
    """Not ordinary English text: markup, control tokens, or mere words in a row."""


@dataclass(frozen=True, slots=True)
class SenseLimits:
    """Where text ends to be an answer at all, whatever anyone's taste."""

    max_repetition: float = 0.15
    """Share of word 3-grams that occurred before in the same answer."""
    min_distinct: float = 0.4
    """Share of distinct words."""
    min_glue: float = 0.2
    """Share of words that bind others to sentences, such as "the" and "of"."""
    min_new_words: int = 5
    """Distinct content words that the question does not have."""
    min_coverage: float = 0.3
    """Share of the question's content words that the answer takes up."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer as rules see it: its text, and what they measure in it."""

    question: str
    text: str
    finish_reason: str
    """As in the chat completions API; anything but ``stop`` is a cut answer."""
    words: list[str]
    repetition: float
    """[0, 1] see ``repetition_of``."""
    coverage: float
    """[0, 1] see ``coverage_of``."""

    @classmethod
    def of(cls, question: str, answer: str, finish_reason: str) -> Reading:
        """Read an answer to a question."""
        words = words_of(answer)
        repetition = repetition_of(words, answer)
        return cls(
            question, answer, finish_reason, words, repetition, coverage_of(question, answer)
        )


_ITEM = re.compile(
    r"^\s*(?:[^\w\s\"'“‘(\[$]+\s+|\(?\d{1,2}[.):]\s*\S|\(?[a-zA-Z][.)]\s+)", re.MULTILINE
)
_HEADING = re.compile(
    r"^\s*(?:#{1,6}\s|(?:step|tip|day|part)\s+\d+\b)", re.MULTILINE | re.IGNORECASE
)
_INLINE_NUMBER = re.compile(r"(?:^|(?<=[\s:;(]))\(?(\d{1,2})[.)]\s*(?=[^\W\d_])")
_LABEL = re.compile(r"^\s*[A-Z][^.!?:\n]{1,50}:(?:\s|$)", re.MULTILINE)
_BOLD = re.compile(r"\*\*|__\w|\*[^\s*][^*\n]*\*|</?(?:b|strong|em|h\d)>", re.IGNORECASE)
_ENDS_SENTENCE = re.compile(r"[.!?][\"'”’)\]]*$")
_TRAILS_OFF = re.compile(r"(?:\.\.|…)[\"'”’)\]]*$")
_BROKEN = re.compile(
    r"<\|\w+\|>|```|\|\s*-{3,}|</?\w+>|https?://|�|^\s*(?:user|assistant|system)\b\s*:?\s*$",
    re.MULTILINE | re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\bI(?:['’]m| am)? (?:sorry|unable|not able|cannot|can['’]t|can not|won['’]t)\b[^.!?]*"
    r"\b(?:answer|help|assist|provide|respond|understand)|\bas an? (?:AI|artificial)\b"
    r"|\bI (?:do not|don['’]t) know\b",
    re.IGNORECASE,
)
_GLUE = frozenset(
    words_of(
        "the a an and or but if of to in on at for with by from as into about up out is are was "
        "were be been can will may should must do does has have had it its they them their there "
        "you your this that these those he she we i my not so than when while which who what how "
        "also more"
    )
)
_COURTESY = frozenset(
    stem(word)
    for word in words_of(
        "hello hi hey greetings welcome thank thanks please sorry glad happy hope luck lucky wish "
        "wishes enjoy fun"
    )
)
_MOST_LINES = 3
"""More lines than this, in so short a text, are a list whatever they begin with."""


def nonsense(reading: Reading, limits: SenseLimits) -> list[Flaw]:
    """Return why a text is no answer, whatever anyone's taste; an empty one is only that."""
    words, answer = reading.words, reading.text
    if not words:
        return [Flaw.EMPTY]
    found = (
        (Flaw.BROKEN, is_broken(answer, words) or glue_of(words) < limits.min_glue),
        (Flaw.CUT, reading.finish_reason != "stop" or not is_complete(answer)),
        (Flaw.REPETITIVE, is_repetitive(words, reading.repetition, limits)),
        (Flaw.ECHO, new_words(reading.question, answer) < limits.min_new_words),
        (
            Flaw.OFF_TOPIC,
            reading.coverage < limits.min_coverage or bool(_REFUSAL.search(answer)),
        ),
    )
    return [flaw for flaw, is_so in found if is_so]


def has_list(answer: str) -> bool:
    """Whether the answer is laid out as a list, with or without markers.

    Markers are bullets, numbered or lettered items, headings and steps.
    Numbers inside a sentence count as a list when two successive ones appear ("1. … 2. …").
    Lines without markers count when two carry a label ("Sleep: …"), when three are mere fragments,
    and when there are more than three of them.
    """
    if _ITEM.search(answer) or _HEADING.search(answer):
        return True
    numbers = [int(match.group(1)) for match in _INLINE_NUMBER.finditer(answer)]
    if any(later == earlier + 1 for earlier, later in pairwise(numbers)):
        return True
    if len(_LABEL.findall(answer)) >= 2:
        return True
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    if len(lines) > _MOST_LINES:
        return True
    fragments = [line for line in lines[1:] if not _ENDS_SENTENCE.search(line)]
    return len(fragments) >= 3


def has_bold(answer: str) -> bool:
    """Whether any words are bold or emphasised by markup."""
    return bool(_BOLD.search(answer))


def is_complete(answer: str) -> bool:
    """Whether the text ends with a sentence, and not by trailing off."""
    text = answer.rstrip()
    return bool(_ENDS_SENTENCE.search(text)) and not _TRAILS_OFF.search(text)


def is_repetitive(words: list[str], repetition: float, limits: SenseLimits) -> bool:
    """Whether phrases come again, a word comes three times in a row, or the words are few."""
    distinct = len(set(words)) / len(words)
    stutters = any(
        one == two == three for one, two, three in zip(words, words[1:], words[2:], strict=False)
    )
    return repetition > limits.max_repetition or distinct < limits.min_distinct or stutters


def glue_of(words: list[str]) -> float:
    """Return the share of words that bind others to sentences; prose has about 0.4."""
    return sum(word in _GLUE for word in words) / len(words)


def is_broken(answer: str, words: list[str]) -> bool:
    """Whether markup, control tokens or noise take the place of ordinary text."""
    letters = sum(len(word) for word in words)
    return bool(_BROKEN.search(answer)) or letters < 0.6 * len(answer.replace(" ", ""))


def repetition_of(words: list[str], answer: str) -> float:
    """Return the share of word 3-grams seen before in the answer; 1.0 if a sentence recurs.

    A sentence of at least four words that comes twice is a repetition whatever the rest says.
    """
    sentences = Counter(tuple(words_of(sentence)) for sentence in sentences_of(answer))
    if any(count > 1 and len(sentence) >= 4 for sentence, count in sentences.items()):
        return 1.0
    grams = list(zip(words, words[1:], words[2:], strict=False))
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


def new_words(question: str, answer: str) -> int:
    """Return how many distinct content words and numbers the answer adds to the question's.

    Words of mere courtesy add nothing.
    """
    return len(_content(answer) - _content(question) - _COURTESY)


def told_words(question: str, answer: str) -> int:
    """Return how many words an answer adds that are not vague: such fit behind any question."""
    told = {stem(word) for word in content_words(answer) if word not in vague_words()}
    return len(told - _content(question) - _COURTESY)


def _content(text: str) -> set[str]:
    return content_stems(text) | {word for word in words_of(text) if word.isdecimal()}


def coverage_of(question: str, answer: str) -> float:
    """Return the share of the question's content words that the answer takes up.

    A word is taken up by any of its forms, or by a word related to it in ``related.txt``. A
    question without content words asks nothing that could be missed: coverage 1.
    """
    asked = list(dict.fromkeys(stem(word) for word in content_words(question)))
    if not asked:
        return 1.0
    said = content_stems(answer)
    related = related_stems()
    taken = sum(1 for word in asked if word in said or related.get(word, frozenset()) & said)
    return taken / len(asked)
