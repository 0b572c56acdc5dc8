"""Answers that only look like some: the question again, and one text for every question.

Both please a rule that looks at one answer and the words it has, whatever was asked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

from rejoinder.evaluation.rules import told_words
from rejoinder.evaluation.text import words_of

COPIED_RUN = 6
"""Words in a row, as the question has them, that are a copy and no accident."""
SHORT_RUN = 3
"""Words in a row that count towards the share of copied ones."""
FEWEST_TOLD = 3
"""Words, none of them vague, that make an answer of a text which has a long copied run; one number
does so, too."""
COPIED_SHARE = 0.5
"""Of an answer's words: beyond that it is the question, somewhat dressed up."""
TEMPLATE_GRAM = 4
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_UNITS = (
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_TENS = ("thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMERALS = {word: Decimal(number) for number, word in enumerate(_UNITS, 2)} | {
    word: Decimal(10 * tens) for tens, word in enumerate(_TENS, 3)
}
"""Without "one", which mostly counts nothing."""


def is_copy(question: str, answer: str) -> bool:
    """Whether an answer mostly repeats the question, or repeats it and adds next to nothing.

    A question shorter than ``COPIED_RUN`` words is repeated by all of it. An honest answer may take
    up many words of a question ("To plan meals for a family of four, ..."): then it goes on.
    """
    asked, said = words_of(question), words_of(answer)
    if not asked or not said:
        return False
    longest = min(COPIED_RUN, max(SHORT_RUN, len(asked)))
    if sum(_in_runs(asked, said, SHORT_RUN)) / len(said) > COPIED_SHARE:
        return True
    return any(_in_runs(asked, said, longest)) and not _tells(question, answer)


def _tells(question: str, answer: str) -> bool:
    has_number = bool(_numbers(answer).keys() - _numbers(question).keys())
    return has_number or told_words(question, answer) >= FEWEST_TOLD


def adds_number(question: str, answer: str, result: Decimal) -> bool:
    """Whether an answer holds a number that the question lacks.

    Where the result itself is among the question's numbers (10 - 5 = 5), it has to come more often
    than there.
    """
    asked, said = _numbers(question), _numbers(answer)
    return bool(said.keys() - asked.keys()) or (result in asked and said[result] > asked[result])


def template_share(answers: Sequence[str]) -> float | None:
    """Return how much of an answer, on average, other answers have too.

    Args:
        answers: to different tasks.

    Returns:
        [0, 1] the mean share of an answer's word 4-grams that another answer has; None where
        there are no two answers.
    """
    grams = [_grams(words_of(answer), TEMPLATE_GRAM) for answer in answers]
    if len(grams) < 2:
        return None
    spread = Counter(gram for own in grams for gram in own)
    shares = [sum(spread[gram] > 1 for gram in own) / len(own) if own else 0.0 for own in grams]
    return round(sum(shares) / len(shares), 4)


def _in_runs(asked: Sequence[str], said: Sequence[str], length: int) -> list[bool]:
    """Return for each word said whether it lies in so long a run of the question's words."""
    known = _grams(asked, length)
    inside = [False] * len(said)
    for start in range(len(said) - length + 1):
        if tuple(said[start : start + length]) in known:
            inside[start : start + length] = [True] * length
    return inside


def _grams(words: Sequence[str], length: int) -> set[tuple[str, ...]]:
    return {tuple(words[start : start + length]) for start in range(len(words) - length + 1)}


def _numbers(text: str) -> Counter[Decimal]:
    digits = (Decimal(number.replace(",", "")) for number in _NUMBER.findall(text))
    parts = (part for word in words_of(text) for part in word.split("-"))
    return Counter([*digits, *(_NUMERALS[part] for part in parts if part in _NUMERALS)])
