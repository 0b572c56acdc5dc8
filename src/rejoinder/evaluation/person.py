"""A scripted person: says in words what somebody with a certain taste would say.

The taste is a rule (``rules.py``); the voice is a phrasebook (``voices/*.toml``). They meet only
here, in natural words: whoever reads the conversation sees no rule, no name of a flaw, no score.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from rejoinder.evaluation.questions import Question
from rejoinder.evaluation.text import content_words

PLEASED, NEXT, GOODBYE = "pleased", "next", "goodbye"

SEVEREST_FIRST = (
    "empty", "broken", "off_topic", "echo", "list", "bold", "repetitive", "cut", "too_long",
    "too_short",
)  # fmt: skip
"""People name what bothers them most; what else was wrong comes up only sometimes."""

_OPENER_CHANCE, _CLOSER_CHANCE, _SECOND_FLAW_CHANCE = 0.5, 0.3, 0.25


@dataclass(frozen=True, slots=True)
class Phrases:
    """Parts of one kind of reaction: ``[opener] core [closer]``."""

    openers: tuple[str, ...]
    cores: tuple[str, ...]
    closers: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many different reactions the parts make, before topic words are filled in."""
        return (len(self.openers) + 1) * len(self.cores) * (len(self.closers) + 1)


Voice = Mapping[str, Phrases]
"""Phrases by kind: a flaw's name, ``pleased``, ``next`` or ``goodbye``."""


@cache
def load_voice(name: str) -> Voice:
    """Read a packaged phrasebook, such as ``plain_prose``."""
    file = resources.files("rejoinder.evaluation.voices").joinpath(f"{name}.toml")
    return parse_voice(file.read_text("utf-8"))


def parse_voice(text: str) -> Voice:
    """Read a phrasebook from TOML text; see ``voices/plain_prose.toml`` for the format."""
    return {
        kind: Phrases(*(tuple(parts[name]) for name in ("openers", "cores", "closers")))
        for kind, parts in tomllib.loads(text).items()
    }


class Person:
    """Reacts to answers and asks on, with a memory long enough not to repeat itself.

    The same seed and the same conversation give the same words.

    Args:
        voice: phrases for every flaw it will be told of.
        seed: of the choice of words.
        order: names of flaws, that which bothers most first.
    """

    def __init__(self, voice: Voice, seed: int, order: Sequence[str] = SEVEREST_FIRST) -> None:
        self._voice = voice
        self._order = order
        self._random = random.Random(seed)  # noqa: S311  (variety, not secrecy)
        self._last: dict[str, str] = {}

    def react(self, question: Question, flaws: Sequence[str]) -> str:
        """Say what one thinks of an answer.

        Args:
            question: what had been asked; its field and words may be named.
            flaws: what the answer did wrong, by name; none means that it pleases.
        """
        if not flaws:
            return self._say(PLEASED, question)
        named = sorted(flaws, key=self._order.index)
        text = self._say(named[0], question)
        if len(named) > 1 and self._random.random() < _SECOND_FLAW_CHANCE:
            text += " " + self._core(named[1], question)
        return text

    def ask_next(self, reaction: str, question: str) -> str:
        """Join a reaction and the words of the next question to one message."""
        link = self._pick(NEXT, self._voice[NEXT].cores)
        return f"{reaction} {link.format(question=question)}"

    def say_goodbye(self, reaction: str, question: Question) -> str:
        """Join a reaction and, half of the time, a goodbye."""
        if self._random.random() < 0.5:
            return reaction
        return f"{reaction} {self._core(GOODBYE, question)}"

    def _say(self, kind: str, question: Question) -> str:
        phrases = self._voice[kind]
        parts = [self._core(kind, question)]
        if phrases.openers and self._random.random() < _OPENER_CHANCE:
            parts.insert(0, self._pick(f"{kind} opener", phrases.openers))
        if phrases.closers and self._random.random() < _CLOSER_CHANCE:
            parts.append(self._pick(f"{kind} closer", phrases.closers))
        return " ".join(parts)

    def _core(self, kind: str, question: Question) -> str:
        core = self._pick(kind, self._voice[kind].cores)
        words = content_words(question.text) or [question.topic]
        word = self._random.choice(words)
        return core.format(topic=question.topic, word=word)

    def _pick(self, slot: str, choices: Sequence[str]) -> str:
        """Choose one, never the one chosen last for the same slot."""
        others = [choice for choice in choices if choice != self._last.get(slot)] or list(choices)
        self._last[slot] = self._random.choice(others)
        return self._last[slot]
