"""What a run of the benchmark leaves behind: one JSON file, complete or not there at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from rejoinder.errors import RejoinderError
from rejoinder.evaluation.statistics import Share
from rejoinder.types import Json

FORMAT = 1
SUFFIX, CUT_SUFFIX = ".run.json", ".cut.json"
"""Of finished runs, and of those that go on or broke off, which only people read."""


class Ended(StrEnum):
    """What ended a run."""

    SESSIONS = "sessions"
    UPDATES = "updates"
    TIME = "time"
    CONVERGED = "converged"
    """No limit: all its personas had, and no more was asked."""
    CUT = "cut"
    """None: the run goes on, or broke off there."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One session: what counts is its first answer."""

    number: int
    """From 1, in the order in which sessions began."""
    persona: str
    task: str
    first_answer: str
    version: int | None
    """Of the policy that gave the first answer."""
    faults: tuple[str, ...]
    """Of the first answer."""
    right: bool | None
    """Whether the first answer's last number is the task's; None where the task has none."""
    answers: int
    content: bool
    """Whether the person left content."""

    @property
    def passes(self) -> bool:
        """Whether the first answer satisfied."""
        return not self.faults


@dataclass(frozen=True, slots=True)
class Rates:
    """First answers of one version to one persona's held-out tasks."""

    passed: Share
    right: Share
    """Of those tasks that have an answer."""
    faults: dict[str, int]
    failed: int = 0
    """Requests without an answer: where there are any, the figures are of the others alone."""
    template: float | None = None
    """[0, 1] mean share of an answer's word 4-grams that answers to other tasks have too."""


@dataclass(frozen=True, slots=True)
class HeldOutAnswer:
    """A first answer to a held-out task, kept so that people can read it."""

    persona: str
    task: str
    text: str
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One version on held-out tasks."""

    version: int
    served_by: tuple[int, ...]
    """Versions that gave the answers: only ``version``, unless a running gateway went on."""
    sessions: int
    """Begun until then."""
    seconds: float
    """Since the run began."""
    personas: dict[str, Rates]
    divergence: float | None
    """KL divergence per token from the start weights, estimated on these answers (``drift.py``);
    None where the engine cannot be asked."""

    @property
    def complete(self) -> bool:
        """Whether all was answered; otherwise it has failed and counts nowhere."""
        return not any(rates.failed for rates in self.personas.values())


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A finished run, or one up to its newest measurement."""

    method: str
    """What reports call it: the algorithm, or a label."""
    personas: tuple[str, ...]
    """More than one: a joint run."""
    seed: int
    settings: Json
    """Everything else that decided how it went."""
    ended: Ended
    updates: int
    samples: int
    """That trained, where the journal can be read."""
    seconds: float
    sessions: tuple[SessionRecord, ...]
    measurements: tuple[Measurement, ...]
    """By version."""
    agreement: Share
    """Verdicts that agree with the rule, where the journal can be read."""
    no_verdicts: int
    lost_sessions: int
    """That ended before a first answer, because a request failed; each was begun again."""
    requests: int
    failed_requests: int
    failures: tuple[str, ...]
    """The first few."""
    answers_before: tuple[HeldOutAnswer, ...] = ()
    """Of the start, to the held-out tasks."""
    answers_after: tuple[HeldOutAnswer, ...] = ()
    """Of the newest version whose measurement is complete, to the same ones."""
    fallbacks: int = 0
    """Reactions for which a language model found no words, so that the phrasebook spoke."""
    rollbacks: int = 0
    """How often the trainer went back by itself, because answers pleased far less."""
    format: int = FORMAT

    @property
    def session_limit(self) -> int:
        """Sessions of each persona until which the run was to be watched."""
        limit: int = self.settings["benchmark"]["sessions"]
        return limit // len(self.personas)

    @property
    def measured(self) -> list[Measurement]:
        """The measurements that count."""
        return [one for one in self.measurements if one.complete]

    def updates_until(self, measurement: Measurement) -> int:
        """Return after how many updates it was made."""
        return measurement.version - self.measurements[0].version


def run_path(folder: Path, personas: Sequence[str], method: str, seed: int) -> Path:
    """Return the file of one run."""
    return folder / f"{'+'.join(personas)}.{method}.seed-{seed}{SUFFIX}"


def refuse_unwritable(folder: Path) -> list[Path]:
    """Make a folder of runs, and refuse one that no run can be written to, before any is made.

    Returns:
        The folders that were not there before, the innermost first.

    Raises:
        RejoinderError: as said.
    """
    try:
        made = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RejoinderError(
            f"runs cannot be written to {folder}: {error.strerror}: name another output folder"
        ) from error
    return made


def write_run(record: RunRecord, path: Path) -> None:
    """Write a run's file; after a crash it is there whole or not at all.

    Raises:
        RejoinderError: it cannot be written.
    """
    data = msgspec.json.format(msgspec.json.encode(record), indent=1)
    # Of this process: another one may make the same run.
    unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise RejoinderError(f"{path} cannot be written: {error.strerror}") from error


def cut_path(path: Path) -> Path:
    """Return the file of a run that has not finished, given the file that it will have."""
    return path.with_name(path.name.removesuffix(SUFFIX) + CUT_SUFFIX)


def read_run(path: Path) -> RunRecord:
    """Read a run's file.

    Raises:
        RejoinderError: it is not one, or of another format.
    """
    record = _read(path)
    if not record.measurements or not record.measurements[0].complete:
        raise RejoinderError(f"{path} has no whole measurement of its start: move it away")
    return record


def _read(path: Path) -> RunRecord:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=RunRecord)
    except (OSError, msgspec.DecodeError) as error:
        raise RejoinderError(
            f"{path} is no readable run of the persona benchmark: {error}"
        ) from error
    if record.format != FORMAT:
        raise RejoinderError(
            f"{path} has format {record.format}, and this version reads {FORMAT}: move it away"
        )
    if fault := _fault(record):
        raise RejoinderError(f"{path} is no readable run of the persona benchmark: {fault}")
    return record


def _fault(record: RunRecord) -> str | None:
    """Return what a record lacks that everything else takes for granted."""
    match record.settings:
        case {"benchmark": {"sessions": int()}}:
            pass
        case _:
            return "its settings lack benchmark.sessions"
    if not record.personas:
        return "it has no persona"
    missing = {name for one in record.measurements for name in {*record.personas} - {*one.personas}}
    return f"a measurement lacks {', '.join(sorted(missing))}" if missing else None


def read_runs(folder: Path) -> list[RunRecord]:
    """Return all finished runs of a folder, by personas, method and seed.

    Raises:
        RejoinderError: a file is not readable, or its name is that of another run: a copy would
            count as one more seed, and the run be made again.
    """
    found: list[RunRecord] = []
    for path in folder.glob(f"*{SUFFIX}"):
        record = read_run(path)
        name = run_path(folder, record.personas, record.method, record.seed).name
        if path.name != name:
            raise RejoinderError(
                f"{path} holds the run whose file is called {name}: give it that name, or move it "
                "away if it is a copy"
            )
        found.append(record)
    return _in_order(found)


def read_cut_runs(folder: Path) -> list[RunRecord]:
    """Return the runs of a folder that have not ended, up to their newest measurements.

    Not even the start need be measured: a run that fails there leaves its file, too.

    Raises:
        RejoinderError: a file is not readable.
    """
    found: list[RunRecord] = []
    for path in folder.glob(f"*{CUT_SUFFIX}"):
        if path.with_name(path.name.removesuffix(CUT_SUFFIX) + SUFFIX).exists():
            continue
        try:
            found.append(_read(path))
        except RejoinderError:
            if path.exists():
                raise  # else another process has just finished the run
    return _in_order(found)


def _in_order(records: Iterable[RunRecord]) -> list[RunRecord]:
    return sorted(records, key=lambda one: (one.personas, one.method, one.seed))
