"""The checks of which a persona's rule is made: what an answer may get wrong, by name.

Each ``[[checks]]`` table of a persona file is one of these sections. Whether a text is an answer
at all (complete, on topic, not repetitive, ...) is no check of this list: ``rules.nonsense`` always
says so, and no file can switch it off.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Protocol

from pydantic import AfterValidator, Field, model_validator

from rejoinder.config import Section
from rejoinder.evaluation.rules import Reading, has_bold, has_list
from rejoinder.evaluation.text import sentences_of, words_of

_ABBREVIATIONS = re.compile(
    r"\b(?:e\.g|i\.e|approx|dr|mrs?|ms|prof|st|vs|etc)\.(?=\s+\S)", re.IGNORECASE
)
_AFTER_GREETING = (
    r"(?!\s+(?:to|of|is|are|was|were|means?)\b)"  # no sentence about a greeting
    r"(?:\s+[\w'’]+){0,3}\s*(?:[^\w\s'’]|\n|$)"
)
"""At most a name or so, and then the clause ends."""
_CLAUSE_END = re.compile(r"[,;:()–—]|\s-\s")
_NEGATION = re.compile(r"\b(?:not|never|no|nobody|nothing|hardly|without|cannot|\w+n't)\b")
_LEAD_IN = re.compile(r"^(?:(?:and|so|now|then|but|also|please|just) )+")
_SPEAKER = re.compile(r"^(?:i|we|i'm|we're|i am|we are|i'll be|we'll be|i will be) (?:always )?")
_STATED = frozenset({"hope", "wish", "happy", "glad", "proud", "here", "cheering"})
"""How phrases begin that people say of themselves; all others speak to somebody."""


class Check(Protocol):
    """One demand on an answer."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Every name that ``fault_of`` may return; the persona has words for each."""
        ...

    def fault_of(self, reading: Reading) -> str | None:
        """Return what the answer gets wrong, None if nothing."""
        ...


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(_compiles)]
FaultName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Texts = Annotated[tuple[str, ...], Field(min_length=1)]


class _Bounds(Section):
    min: int = Field(0, ge=0)
    max: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _says_something(self) -> _Bounds:
        if self.min == 0 and self.max is None:
            raise ValueError("give min, max or both")
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max = {self.max} is below min = {self.min}")
        return self

    def _side(self, count: int, too_few: str, too_many: str) -> str | None:
        if count < self.min:
            return too_few
        return too_many if self.max is not None and count > self.max else None

    def _sides(self, too_few: str, too_many: str) -> tuple[str, ...]:
        return ((too_few,) if self.min else ()) + ((too_many,) if self.max is not None else ())


class Words(_Bounds):
    """``words``: how many the answer has."""

    @property
    def faults(self) -> tuple[str, ...]:
        """See ``Check``."""
        return self._sides("too_short", "too_long")

    def fault_of(self, reading: Reading) -> str | None:
        """See ``Check``."""
        return self._side(len(reading.words), "too_short", "too_long")


class Sentences(_Bounds):
    """``sentences``: how many the answer has; a line end also ends one."""

    @property
    def faults(self) -> tuple[str, ...]:
        """See ``Check``."""
        return self._sides("too_few_sentences", "too_many_sentences")

    def fault_of(self, reading: Reading) -> str | None:
        """See ``Check``."""
        count = len(_sentences(reading.text))
        return self._side(count, "too_few_sentences", "too_many_sentences")


class _OneFault(Section):
    """A check that can fail in one way only; ``fault`` names it."""

    fault: FaultName

    @property
    def faults(self) -> tuple[str, ...]:
        """See ``Check``."""
        return (self.fault,)

    def fault_of(self, reading: Reading) -> str | None:
        """See ``Check``."""
        return self.fault if self._is_broken(reading) else None

    @abstractmethod
    def _is_broken(self, reading: Reading) -> bool: ...


class NoList(_OneFault):
    """``no_list``: not laid out as a list, with or without markers."""

    fault: FaultName = "list"

    def _is_broken(self, reading: Reading) -> bool:
        return has_list(reading.text)


class NoBold(_OneFault):
    """``no_bold``: no words made bold or emphasised by markup."""

    fault: FaultName = "bold"

    def _is_broken(self, reading: Reading) -> bool:
        return has_bold(reading.text)


class NoExclamationMark(_OneFault):
    """``no_exclamation_mark``: none anywhere."""

    fault: FaultName = "exclamation"

    def _is_broken(self, reading: Reading) -> bool:
        return any(mark in reading.text for mark in "!！¡")


class PlainAscii(_OneFault):
    """``plain_ascii``: only letters and signs of a plain keyboard."""

    fault: FaultName = "not_ascii"

    def _is_broken(self, reading: Reading) -> bool:
        return not reading.text.isascii()


class Greeting(_OneFault):
    """``greeting``: the first words greet, as a clause of their own ("Hello there, ...")."""

    words: Texts = (
        "hello", "hello there", "hi", "hi there", "hey", "hey there", "good morning",
        "good afternoon", "good evening", "good day", "greetings", "welcome",
    )  # fmt: skip

    fault: FaultName = "no_greeting"

    def _is_broken(self, reading: Reading) -> bool:
        start = f"(?:{_any_of(self.words)}){_AFTER_GREETING}"
        return re.match(start, reading.text.lstrip(), re.IGNORECASE) is None


class WarmEnding(_OneFault):
    """``warm_ending``: the last sentence, or a clause of it, begins with one of the phrases.

    Something has to stand before that sentence. A phrase amid other words may describe anything
    ("something that children do not enjoy") and is no wish.
    """

    phrases: Texts = (
        "good luck", "best of luck", "take care", "have fun", "best wishes", "warm wishes",
        "all the best", "enjoy", "happy to help", "glad to help", "hope this helps",
        "hope that helps", "you can do it", "you've got this", "you are doing great",
        "you're doing great", "well done", "keep it up", "proud of you", "wish you",
        "here for you", "cheering for you", "keep up the good work", "great job", "good job",
        *(f"have {article} {how} {what}"
          for article, how in (
              ("a", "lovely"), ("a", "nice"), ("a", "great"), ("a", "good"), ("a", "wonderful"),
          )
          for what in (
              "day", "time", "morning", "afternoon", "evening", "night", "week", "weekend", "trip",
              "journey", "holiday", "vacation", "meal", "dinner", "party", "one", "start", "rest",
          )),
    )  # fmt: skip

    fault: FaultName = "no_warm_ending"

    def _is_broken(self, reading: Reading) -> bool:
        sentences = _sentences(reading.text)
        if len(sentences) < 2:
            return True
        return not any(self._is_warm(clause) for clause in _CLAUSE_END.split(sentences[-1]))

    def _is_warm(self, clause: str) -> bool:
        # Words are compared, so that the form of an apostrophe does not matter.
        text = f"{' '.join(words_of(clause))} "
        if _NEGATION.search(text):
            return False
        text = _LEAD_IN.sub("", text)
        speaker = _SPEAKER.match(text)
        if speaker is not None:
            text = text[speaker.end() :]
            if text.partition(" ")[0] not in _STATED:
                return False  # "I enjoy it" wishes nobody anything
        return any(text.startswith(f"{' '.join(words_of(one))} ") for one in self.phrases)


class MustMatch(_OneFault):
    """``must_match``: a regular expression is found somewhere (case ignored)."""

    pattern: Pattern

    def _is_broken(self, reading: Reading) -> bool:
        return re.search(self.pattern, reading.text, re.IGNORECASE) is None


class MustNotMatch(_OneFault):
    """``must_not_match``: a regular expression is found nowhere (case ignored)."""

    pattern: Pattern

    def _is_broken(self, reading: Reading) -> bool:
        return re.search(self.pattern, reading.text, re.IGNORECASE) is not None


AnyCheck = (
    Words
    | Sentences
    | NoList
    | NoBold
    | NoExclamationMark
    | PlainAscii
    | Greeting
    | WarmEnding
    | MustMatch
    | MustNotMatch
)
CHECKS: dict[str, type[AnyCheck]] = {
    "words": Words,
    "sentences": Sentences,
    "no_list": NoList,
    "no_bold": NoBold,
    "no_exclamation_mark": NoExclamationMark,
    "plain_ascii": PlainAscii,
    "greeting": Greeting,
    "warm_ending": WarmEnding,
    "must_match": MustMatch,
    "must_not_match": MustNotMatch,
}
"""Each check by the name that files give it."""


def _sentences(text: str) -> list[str]:
    """Return the sentences; the full stop of a common abbreviation ends none."""
    return sentences_of(_ABBREVIATIONS.sub(lambda match: match.group()[:-1], text))


def _any_of(texts: Sequence[str]) -> str:
    longest_first = sorted(texts, key=len, reverse=True)
    return "|".join(re.escape(text) for text in longest_first)
