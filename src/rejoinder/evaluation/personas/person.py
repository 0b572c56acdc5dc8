"""A scripted person: says in words what somebody with a certain taste would say.

The taste is a rule (``checks.py``, ``rules.py``); the voice is a phrasebook. They meet in natural
words: whoever reads the conversation sees no rule, no name of a fault, no score.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rejoinder.evaluation.questions import Question
from rejoinder.evaluation.text import content_words

PLEASED, GOODBYE = "pleased", "goodbye"

_OPENER_CHANCE, _CLOSER_CHANCE, _SECOND_FAULT_CHANCE = 0.5, 0.3, 0.25


@dataclass(frozen=True, slots=True)
class Phrases:
    """Parts of one kind of reaction: ``[opener] core [closer]``."""

    openers: tuple[str, ...]
    cores: tuple[str, ...]
    closers: tuple[str, ...]


Voice = Mapping[str, Phrases]
"""Phrases by kind: a fault's name, ``pleased`` or ``goodbye``."""


class Person:
    """Reacts to answers, with a memory long enough not to repeat itself.

    The same seed and the same conversation give the same words.

    Args:
        voice: phrases for every fault it will be told of.
        seed: of the choice of words.
        order: names of faults, that which bothers most first. People name what bothers them most;
            what else was wrong comes up only sometimes.
    """

    def __init__(self, voice: Voice, seed: int, order: Sequence[str]) -> None:
        self._voice = voice
        self._order = order
        self._random = random.Random(seed)  # noqa: S311  (variety, not secrecy)
        self._last: dict[str, str] = {}

    def react(self, question: Question, faults: Sequence[str]) -> str:
        """Say what one thinks of an answer.

        Args:
            question: what had been asked; its field and words may be named.
            faults: what the answer did wrong, by name; none means that it pleases.
        """
        if not faults:
            return self._say(PLEASED, question)
        named = sorted(faults, key=self._order.index)
        text = self._say(named[0], question)
        if len(named) > 1 and self._random.random() < _SECOND_FAULT_CHANCE:
            text += " " + self._core(named[1], question)
        return text

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
