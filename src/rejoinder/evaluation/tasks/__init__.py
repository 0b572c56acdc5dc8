"""What simulated people ask about: task sets, and when an answer's number is right."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from importlib import resources
from pathlib import Path

from rejoinder.chat.unicode import mend_escapes
from rejoinder.errors import ConfigError
from rejoinder.evaluation.questions import Question, Split, load_questions
from rejoinder.paths import expanded

EVERYDAY, WORD_PROBLEMS = "everyday", "word_problems"
SHIPPED = (EVERYDAY, WORD_PROBLEMS)
HELD_OUT_EVERY = 3
"""Of a file's tasks, each so many-th is held out: the file need not say which."""
_TOPIC = "this calculation"
_NUMBER = re.compile(r"(?:(?<=[\s(=$])-|^-)?\$?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?")
_MARK = "####"
"""What stands before the result in the answers of GSM8K."""


@dataclass(frozen=True, slots=True)
class Task(Question):
    """Something to ask; ``answer`` is the number a right answer ends with, where it has one."""

    answer: Decimal | None = None

    def is_right(self, text: str) -> bool | None:
        """Whether the last number of a text is the answer; None where the task has none."""
        return None if self.answer is None else last_number(text) == self.answer


def last_number(text: str) -> Decimal | None:
    """Return the last number of a text; "1,200", "$12.50" and "-3" are numbers."""
    found = list(_NUMBER.finditer(text))
    if not found:
        return None
    last = found[-1]
    value = Decimal(last.group(1).replace(",", "") + (last.group(2) or ""))
    return value.copy_negate() if last.group().startswith("-") else value


def load_tasks(name: str, split: Split, folder: Path | None = None) -> tuple[Task, ...]:
    """Return one split of a task set, in its order.

    Args:
        name: ``everyday``, ``word_problems``, or the path of a JSONL file in the format of GSM8K:
            ``{"question": "...", "answer": "... #### 42"}``, the words before the mark optional.
        split: to train on, or held out.
        folder: where a relative path begins; None: the working directory.

    Raises:
        ConfigError: the file is missing, too short, or a line is no such task.
    """
    if name == EVERYDAY:
        return tuple(Task(one.text, one.topic) for one in load_questions(split))
    if name == WORD_PROBLEMS:
        text = resources.files(__package__).joinpath(f"{name}.jsonl").read_text("utf-8")
        return _split(parse_tasks(text, name), split)
    path = (folder or Path()) / expanded(name)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        sets = ", ".join(SHIPPED)
        raise ConfigError(
            f"tasks {name!r}: no task set has this name ({sets}), and no file can be read at "
            f"{path}: {error}"
        ) from error
    return _split(parse_tasks(text, str(path)), split)


def parse_tasks(text: str, source: str) -> tuple[Task, ...]:
    """Read tasks from JSONL text; ``source`` names it in errors.

    Raises:
        ConfigError: a line is no task, or there are fewer than a split needs.
    """
    # Not splitlines(): JSON strings may hold the other line separators of Unicode as they are.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    tasks = tuple(_parse(line, f"{source}, line {number}") for number, line in lines)
    if len(tasks) < HELD_OUT_EVERY:
        raise ConfigError(f"{source} has {len(tasks)} tasks: at least {HELD_OUT_EVERY} are needed")
    return tasks


def _parse(line: str, place: str) -> Task:
    try:
        record = json.loads(mend_escapes(line))
        question, answer = record["question"], record["answer"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f'{place}: not of the form {{"question": "...", "answer": "..."}}'
        ) from error
    if not isinstance(question, str) or not question.strip() or not isinstance(answer, str):
        raise ConfigError(f"{place}: question and answer must be texts, the question not empty")
    number = last_number(answer.rpartition(_MARK)[2])
    if number is None:
        raise ConfigError(f"{place}: the answer {answer!r} holds no number")
    return Task(question.strip(), _TOPIC, number)


def _split(tasks: tuple[Task, ...], split: Split) -> tuple[Task, ...]:
    wanted = split is Split.HELDOUT
    return tuple(
        task for number, task in enumerate(tasks, 1) if (number % HELD_OUT_EVERY == 0) == wanted
    )
