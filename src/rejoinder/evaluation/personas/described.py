"""What decides how a run goes, as plain JSON: runs are compared and pooled only where it agrees."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from itertools import groupby, pairwise
from pathlib import Path

from rejoinder.config import Config
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.personas.persona import Persona
from rejoinder.evaluation.personas.settings import BenchmarkSettings, system_config
from rejoinder.evaluation.questions import Split
from rejoinder.types import Json

_PLACE = {"gateway": ("host", "port"), "engine": ("host", "port"), "journal": ("url",)}
"""Where a system runs and keeps its data, which changes nothing that it learns."""
_RULES = (
    "rejoinder.evaluation.rules",
    "rejoinder.evaluation.text",
    "rejoinder.evaluation.tasks",
    "rejoinder.evaluation.personas.checks",
    "rejoinder.evaluation.personas.copying",
    "rejoinder.evaluation.personas.persona",
)
"""The code that decides whether an answer passes and is right."""
_WORD_LISTS = "rejoinder.evaluation.wordlists"
_MEASURE = ("benchmark", "personas", "tasks", "rules", "voice", "packed")
"""Who asks, what counts, and how runs are made: the same for every method, or their results do not
compare."""


def describe(
    personas: Sequence[Persona], settings: BenchmarkSettings, voice: str, learner: Json
) -> Json:
    """Return all that decides how a run goes, but not where it is kept.

    Args:
        personas: who talk.
        settings: of the benchmark.
        voice: who puts their opinions into words.
        learner: what learns; see ``describe_system``.
    """
    benchmark = asdict(settings)
    if not settings.until_converged:  # runs of before there was a choice agree with these
        del benchmark["until_converged"]
    return {
        "benchmark": benchmark,
        "personas": {persona.name: persona.digest for persona in personas},
        "tasks": {persona.name: _tasks_digest(persona) for persona in personas},
        "rules": _rules_digest(),
        "voice": voice,
        **learner,
    }


def describe_system(base: Config, settings: BenchmarkSettings, algorithm: str) -> Json:
    """Return the whole configuration of a run's own system, without its places and its seed."""
    config = system_config(base, settings, algorithm, 0, Path()).model_dump(mode="json")
    del config["home"]
    for section, keys in _PLACE.items():
        for key in keys:
            config[section].pop(key, None)
    return {"configuration": config}


@dataclass(frozen=True, slots=True)
class Described:
    """A run, made or planned, by its settings."""

    name: str
    """What errors call it."""
    personas: tuple[str, ...]
    method: str
    settings: Json


def require_agreement(runs: Sequence[Described]) -> None:
    """Refuse runs that must not be pooled or compared.

    Over the seeds of a method everything has to agree; between methods whatever says who asks
    and what counts.

    Raises:
        RejoinderError: two runs differ, with what they differ in.
    """
    ordered = sorted(runs, key=lambda run: (run.personas, run.method))
    for _, of_personas in groupby(ordered, key=lambda run: run.personas):
        for before, after in pairwise(of_personas):
            changed = differences(before.settings, after.settings)
            if before.method != after.method:
                changed = [key for key in changed if key.partition(".")[0] in _MEASURE]
            if changed:
                told = ", ".join(_told(key, before.settings, after.settings) for key in changed)
                raise RejoinderError(
                    f"{before.name} has other settings than {after.name} ({told}): let "
                    "them agree, name another output folder or label, or move the files away"
                )


def differences(one: Json, other: Json, prefix: str = "") -> list[str]:
    """Return the keys, with dots, in which two objects differ."""
    found: list[str] = []
    for key in sorted({*one, *other}):
        left, right = one.get(key), other.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            found += differences(left, right, f"{prefix}{key}.")
        elif left != right:
            found.append(f"{prefix}{key}")
    return found


def _told(key: str, one: Json, other: Json) -> str:
    """Return a key, and both values where they tell a person anything."""
    values: list[object] = [one, other]
    for part in key.split("."):
        values = [value.get(part) if isinstance(value, dict) else None for value in values]
    shown = key.partition(".")[0] in {"benchmark", "configuration"} and all(
        isinstance(value, str | int | float | None) for value in values
    )
    return f"{key}: {values[0]} and {values[1]}" if shown else key


def _tasks_digest(persona: Persona) -> str:
    """Tell task sets apart by what they ask: a file may have changed under its name."""
    texts = [f"{task.text} {task.answer}" for split in Split for task in persona.load_tasks(split)]
    return _digest("\n".join(texts).encode())


@cache
def _rules_digest() -> str:
    """Tell versions of the rule apart: what passed under one need not pass under another."""
    specs = [importlib.util.find_spec(name) for name in _RULES]
    files = [Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None]
    lists = [file for file in resources.files(_WORD_LISTS).iterdir() if file.name.endswith(".txt")]
    by_name = sorted(lists, key=lambda file: file.name)
    return _digest(b"\0".join(file.read_bytes() for file in (*files, *by_name)))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
