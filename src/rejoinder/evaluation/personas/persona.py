"""Personas: a simulated person's wish, rule and words, read from one declarative TOML file.

A persona's rule is that an answer makes sense (``rules.nonsense`` and ``copying.py``, always) and
passes its checks.
Its words say what was wrong, and how it should have been, as people would. Rule and words meet only
here and in ``speakers.py``: whoever reads a conversation sees no rule, no fault's name, no score.
"""

from __future__ import annotations

import difflib
import hashlib
import random
import string
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from rejoinder.config import Section
from rejoinder.config.faults import describe_fault
from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.evaluation.personas.checks import CHECKS, Check
from rejoinder.evaluation.personas.copying import adds_number, is_copy
from rejoinder.evaluation.personas.person import GOODBYE, PLEASED, Person, Phrases, Voice
from rejoinder.evaluation.questions import Split
from rejoinder.evaluation.rules import Flaw, Reading, SenseLimits, nonsense
from rejoinder.evaluation.tasks import Task, load_tasks
from rejoinder.paths import expanded

MIN_CORES = 6
"""Phrases per kind of reaction: a person who repeats one sentence teaches that sentence."""
NO_NUMBER = "no_number"
"""Fault of an answer to a task with a result that holds no number but those of the task."""
NO_ANSWER = (
    str(Flaw.EMPTY), str(Flaw.BROKEN), str(Flaw.OFF_TOPIC), str(Flaw.ECHO), NO_NUMBER,
)  # fmt: skip
"""Bother more than any broken wish."""
BAD_ANSWER = (Flaw.REPETITIVE, Flaw.CUT)
"""Bother less than a broken wish, which is often what caused them."""
_PACKAGE = "rejoinder.evaluation.personas.shipped"
_COMMON = "common_words.toml"
_USUAL = SenseLimits()
_Model = TypeVar("_Model", bound=BaseModel)


class _Sense(Section):
    """Bounded, so that no file can switch it off."""

    max_repetition: float = Field(_USUAL.max_repetition, ge=0, le=0.5)
    min_distinct: float = Field(_USUAL.min_distinct, ge=0.2, le=1)
    min_glue: float = Field(_USUAL.min_glue, ge=0.05, le=1)
    min_new_words: int = Field(_USUAL.min_new_words, ge=1)
    min_coverage: float = Field(_USUAL.min_coverage, ge=0.1, le=1)


class _Words(Section):
    openers: tuple[str, ...] = ()
    cores: tuple[str, ...]
    closers: tuple[str, ...] = ()


class _File(Section):
    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    description: str = Field(min_length=10)
    tasks: str = "everyday"
    turns: int = Field(3, ge=1, le=10)
    max_tokens: int = Field(128, ge=16, le=4096)
    asks: tuple[str, ...] = ("{task}",)
    checks: tuple[dict[str, Any], ...] = Field(min_length=1)
    sense: _Sense = _Sense()
    reactions: dict[str, _Words]


@dataclass(frozen=True, slots=True)
class Persona:
    """Somebody with a wish."""

    name: str
    description: str
    """In one or two sentences, what this person wants; a model that plays the person reads it."""
    tasks: str
    """Name or path of the task set; see ``load_tasks``."""
    turns: int
    """Answers after which the person leaves, content or not."""
    max_tokens: int
    asks: tuple[str, ...]
    """How a task is put; ``{task}`` stands for it."""
    checks: tuple[Check, ...]
    sense: SenseLimits
    voice: Voice
    order: tuple[str, ...]
    """Every fault the rule knows, what bothers this person most first."""
    folder: Path | None
    """Of the file, where relative paths in it begin; None: it came with the package."""
    digest: str
    """Of all that decides what the person wants and says: results of other words are others."""

    def faults_of(self, task: Task, answer: str, finish_reason: str) -> tuple[str, ...]:
        """Return what is wrong with an answer to a task, the most bothering first; () if content.

        Args:
            task: what was asked.
            answer: the text the client received.
            finish_reason: as in the chat completions API.
        """
        reading = Reading.of(task.text, answer, finish_reason)
        senseless = nonsense(reading, self.sense)
        broken = {str(flaw) for flaw in senseless}
        if Flaw.EMPTY not in senseless:
            broken |= {fault for check in self.checks if (fault := check.fault_of(reading))}
            if is_copy(task.text, answer):
                broken.add(str(Flaw.ECHO))
            if task.answer is not None and not adds_number(task.text, answer, task.answer):
                broken.add(NO_NUMBER)
        return tuple(sorted(broken, key=self.order.index))

    def load_tasks(self, split: Split) -> tuple[Task, ...]:
        """Return what this person asks about.

        Raises:
            ConfigError: see ``load_tasks``.
        """
        return load_tasks(self.tasks, split, self.folder)

    def put(self, task: Task, rng: random.Random) -> str:
        """Return the words in which this person asks."""
        return rng.choice(self.asks).replace("{task}", task.text)

    def speak(self, seed: int) -> Person:
        """Return somebody who talks like this persona."""
        return Person(self.voice, seed, self.order)


def shipped_personas() -> list[str]:
    """Return the names of the personas that come with the package, in order."""
    files = (file.name for file in resources.files(_PACKAGE).iterdir())
    return sorted(
        name.removesuffix(".toml") for name in files if name.endswith(".toml") and name != _COMMON
    )


def load_persona(name: str) -> Persona:
    """Read a persona by its shipped name or the path of its file.

    Raises:
        RejoinderError: there is no such persona.
        ConfigError: its file has faults; all are listed.
    """
    if name in shipped_personas():
        text = resources.files(_PACKAGE).joinpath(f"{name}.toml").read_text("utf-8")
        return parse_persona(text, f"persona {name!r}", None)
    path = expanded(name)
    if path.suffix != ".toml":
        close = difflib.get_close_matches(name, shipped_personas(), n=1)
        hint = (
            f"did you mean {close[0]}?" if close else f"there are {', '.join(shipped_personas())}"
        )
        raise RejoinderError(
            f"no persona is called {name!r}; {hint} (or give the path of a .toml file)"
        )
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the persona {path}: {error}") from error
    return parse_persona(text, str(path), path.parent)


def parse_persona(text: str, source: str, folder: Path | None) -> Persona:
    """Read a persona from TOML text; ``source`` names it in errors.

    Raises:
        ConfigError: the text has faults; all are listed.
    """
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: numbers, nesting
        raise ConfigError(f"{source} is not valid TOML: {error}") from error
    file, faults = _validated(_File, _tuples(table))
    if file is None:
        raise _with_faults(source, faults)
    checks, faults = _checks(file.checks)
    order = _order(checks)
    words = _common_words() | file.reactions
    faults += [*_asks_faults(file.asks), *_reaction_faults(file.reactions, words, order)]
    if faults:
        raise _with_faults(source, faults)
    known = {kind: words[kind] for kind in (*order, PLEASED, GOODBYE)}
    return Persona(
        name=file.name,
        description=file.description,
        tasks=file.tasks,
        turns=file.turns,
        max_tokens=file.max_tokens,
        asks=file.asks,
        checks=checks,
        sense=SenseLimits(**file.sense.model_dump()),
        voice={kind: _phrases(own) for kind, own in known.items()},
        order=order,
        folder=folder,
        digest=_digest(file, known),
    )


def _checks(tables: Sequence[dict[str, Any]]) -> tuple[tuple[Check, ...], list[str]]:
    """Return the checks of a file, or what is wrong with them."""
    found: list[Check] = []
    faults: list[str] = []
    for number, table in enumerate(tables, 1):
        parameters = dict(table)
        name = parameters.pop("check", None)
        place = f"checks, number {number}"
        if not isinstance(name, str) or name not in CHECKS:
            close = difflib.get_close_matches(str(name), CHECKS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(CHECKS)}"
            faults.append(f"{place}: {name!r} is no check; {hint}")
            continue
        check, wrong = _validated(CHECKS[name], parameters)
        faults += [f"{place} ({name}): {one}" for one in wrong]
        if check is not None:
            found.append(check)
    return tuple(found), faults


def _order(checks: Sequence[Check]) -> tuple[str, ...]:
    wishes = [fault for check in checks for fault in check.faults]
    return tuple(dict.fromkeys([*NO_ANSWER, *wishes, *map(str, BAD_ANSWER)]))


def _asks_faults(asks: Sequence[str]) -> list[str]:
    if not asks:
        return ['asks: give at least one, such as "{task}"']
    return [f'asks: {ask!r} lacks "{{task}}"' for ask in asks if "{task}" not in ask]


def _reaction_faults(
    own: dict[str, _Words], words: dict[str, _Words], order: Sequence[str]
) -> list[str]:
    """Return what is wrong with the words: every fault needs some, varied, and no others exist."""
    possible = (*order, PLEASED, GOODBYE)
    faults = [
        f"reactions.{kind}: no check of this file finds that; there are {', '.join(possible)}"
        for kind in own
        if kind not in possible
    ]
    for kind in possible:
        if kind not in words:
            faults.append(f"reactions.{kind} is required: what the person says about that")
        elif len(set(words[kind].cores)) < MIN_CORES:
            faults.append(f"reactions.{kind}: needs at least {MIN_CORES} different cores")
    return faults + [
        f"reactions.{kind}: {text!r}: {fault}"
        for kind, phrases in own.items()
        for texts in (phrases.openers, phrases.cores, phrases.closers)
        for text in texts
        if (fault := _placeholder_fault(text, fillable=texts is phrases.cores))
    ]


def _phrases(words: _Words) -> Phrases:
    """Return words as they are said; cores are filled later, and have their braces doubled."""
    openers, closers = (
        tuple(text.format() for text in texts) for texts in (words.openers, words.closers)
    )
    return Phrases(openers, words.cores, closers)


def _placeholder_fault(text: str, *, fillable: bool) -> str | None:
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        return f"{error}; write {{{{ for a brace"
    names = {name for _, name, _, _ in parts if name is not None}
    if names and not fillable:
        return "only cores may have placeholders"
    if unknown := names - {"topic", "word"}:
        return f"the placeholders are {{topic}} and {{word}}, not {sorted(unknown)}"
    if any(form or conversion for _, _, form, conversion in parts):
        return "a placeholder is its name in braces and nothing else"
    return None


@cache
def _common_words() -> dict[str, _Words]:
    """Return what all personas say of an answer that is none, and as goodbye."""
    text = resources.files(_PACKAGE).joinpath(_COMMON).read_text("utf-8")
    return {
        kind: _Words.model_validate(phrases)
        for kind, phrases in _tuples(tomllib.loads(text)).items()
    }


def _validated(model: type[_Model], data: dict[str, Any]) -> tuple[_Model | None, list[str]]:
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        return None, [describe_fault(model, fault) for fault in error.errors()]


def _tuples(value: Any) -> Any:
    """TOML's arrays as tuples, which strict validation asks for."""
    if isinstance(value, dict):
        return {key: _tuples(inner) for key, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _with_faults(source: str, faults: Sequence[str]) -> ConfigError:
    return ConfigError(f"{source} has faults:\n" + "\n".join(f"  {fault}" for fault in faults))


def _digest(file: _File, words: dict[str, _Words]) -> str:
    parts = [file.model_dump_json(), *(f"{kind} {own!r}" for kind, own in words.items())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
