"""Everyday questions: one set to train on, another, never trained on, to measure with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources


class Split(StrEnum):
    """Which of the two sets."""

    TRAINING = "training"
    HELDOUT = "heldout"


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the field of life it belongs to."""

    text: str
    topic: str


@cache
def load_questions(split: Split) -> tuple[Question, ...]:
    """Return the questions of a split in the order of its file: topic by topic."""
    file = resources.files(__package__).joinpath(f"{split}.txt")
    questions: list[Question] = []
    topic = ""
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("# "):
            topic = line.removeprefix("# ")
        elif line:
            questions.append(Question(line, topic))
    return tuple(questions)
