"""What runs found, persona by persona: sessions to converge, rates, drift, and their spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rejoinder.evaluation.personas.records import Measurement, RunRecord, SessionRecord
from rejoinder.evaluation.statistics import (
    Duration,
    Estimate,
    common_horizon,
    mean_over_runs,
    ratio_of_means,
    restricted,
)

STREAK = 3
"""First answers in a row that satisfy."""
CONVERGED_RATE = 0.8
"""Of held-out first answers: three in a row may be luck, this is not."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose learning by whom is reported: one persona in runs of one set of personas."""

    personas: tuple[str, ...]
    """Of the runs; more than one: joint runs."""
    persona: str

    @property
    def title(self) -> str:
        """The persona, and whether others were there."""
        return self.persona if len(self.personas) == 1 else f"{self.persona} (joint)"


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The held-out pass rate after so many updates, over seeds."""

    updates: int
    passed: Estimate


@dataclass(frozen=True, slots=True)
class Outcome:
    """One method on one subject, over seeds."""

    subject: Subject
    method: str
    seeds: tuple[int, ...]
    converged: int
    """Runs in which it did."""
    horizon: int
    """Sessions of the persona to which the mean is restricted: all methods' runs reach it."""
    sessions: Estimate
    """Restricted mean of the sessions to converge."""
    restricted_sessions: tuple[int, ...]
    """By seed."""
    passed_before: Estimate
    passed_after: Estimate
    passed_best: Estimate
    right_before: Estimate | None
    """None where the tasks have no answers."""
    right_after: Estimate | None
    divergence: Estimate | None
    """Of the last version; None where it could not be measured."""
    curve: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Sessions to converge of a method, as a multiple of another's, over the seeds of both."""

    subject: Subject
    method: str
    reference: str
    seeds: int
    ratio: Estimate
    """Below 1: the method needs fewer sessions."""


def sessions_to_streak(sessions: Iterable[SessionRecord]) -> Duration:
    """Return after how many sessions three first answers in a row had passed."""
    row = count = 0
    for count, session in enumerate(sessions, 1):
        row = row + 1 if session.passes else 0
        if row == STREAK:
            return Duration(count, happened=True)
    return Duration(count, happened=False)


def sessions_to_converge(run: RunRecord, persona: str) -> Duration:
    """Return after how many of the persona's sessions it had converged.

    That is when three first answers in a row have passed *and* a version has been measured that
    satisfies at least 0.8 of the held-out tasks, whichever comes later.
    """
    own = [session for session in run.sessions if session.persona == persona]
    streak = sessions_to_streak(own)
    good = [one for one in run.measurements if one.personas[persona].passed.value >= CONVERGED_RATE]
    if not streak.happened or not good:
        return Duration(len(own), happened=False)
    begun = min(one.sessions for one in good)
    before = sum(session.number <= begun for session in own)
    return Duration(max(streak.length, before), happened=True)


def outcomes(runs: Sequence[RunRecord]) -> list[Outcome]:
    """Return what each method did on each subject, by subject and method."""
    found: list[Outcome] = []
    for subject in _subjects(runs):
        of_subject = [run for run in runs if run.personas == subject.personas]
        durations = {id(run): sessions_to_converge(run, subject.persona) for run in of_subject}
        horizon = common_horizon(list(durations.values()))
        by_method = sorted(of_subject, key=lambda run: (run.method, run.seed))
        for method, group in groupby(by_method, key=lambda run: run.method):
            own = list(group)
            found.append(
                _outcome(subject, method, own, [durations[id(run)] for run in own], horizon)
            )
    return found


def comparisons(found: Sequence[Outcome], reference: str) -> list[Comparison]:
    """Compare every other method with the reference, where they share at least one seed."""
    compared: list[Comparison] = []
    for base in (one for one in found if one.method == reference):
        for other in found:
            if other.subject != base.subject or other.method == reference:
                continue
            theirs = dict(zip(base.seeds, base.restricted_sessions, strict=True))
            own = dict(zip(other.seeds, other.restricted_sessions, strict=True))
            shared = [seed for seed in other.seeds if seed in theirs]
            references = [theirs[seed] for seed in shared]
            if not shared or min(references) <= 0:
                continue
            ratio = ratio_of_means([own[seed] for seed in shared], references)
            compared.append(Comparison(base.subject, other.method, reference, len(shared), ratio))
    return compared


def _subjects(runs: Sequence[RunRecord]) -> list[Subject]:
    pairs = dict.fromkeys(
        Subject(run.personas, persona) for run in runs for persona in run.personas
    )
    return list(pairs)


def _outcome(
    subject: Subject,
    method: str,
    runs: Sequence[RunRecord],
    durations: Sequence[Duration],
    horizon: int,
) -> Outcome:
    persona = subject.persona
    lengths = tuple(restricted(duration, horizon) for duration in durations)
    rates = [[one.personas[persona] for one in run.measurements] for run in runs]
    divergences = [run.measurements[-1].divergence for run in runs]
    right = all(first.right.of for first, *_ in rates)
    return Outcome(
        subject=subject,
        method=method,
        seeds=tuple(run.seed for run in runs),
        converged=sum(duration.happened for duration in durations),
        horizon=horizon,
        sessions=mean_over_runs(lengths),
        restricted_sessions=lengths,
        passed_before=mean_over_runs([own[0].passed.value for own in rates]),
        passed_after=mean_over_runs([own[-1].passed.value for own in rates]),
        passed_best=mean_over_runs([max(one.passed.value for one in own) for own in rates]),
        right_before=mean_over_runs([own[0].right.value for own in rates]) if right else None,
        right_after=mean_over_runs([own[-1].right.value for own in rates]) if right else None,
        divergence=_mean_of_known(divergences),
        curve=_curve(runs, persona),
    )


def _mean_of_known(values: Sequence[float | None]) -> Estimate | None:
    known = [value for value in values if value is not None]
    return mean_over_runs(known) if known else None


def _curve(runs: Sequence[RunRecord], persona: str) -> tuple[CurvePoint, ...]:
    """Return the mean curve up to where every run has got.

    A run that did not measure after just so many updates counts with what it measured last: its
    policy had not been looked at since.
    """
    reached = min(_updates(run, run.measurements[-1]) for run in runs)
    points = sorted({_updates(run, one) for run in runs for one in run.measurements})
    return tuple(
        CurvePoint(
            updates,
            mean_over_runs([_last_by(run, updates).personas[persona].passed.value for run in runs]),
        )
        for updates in points
        if updates <= reached
    )


def _updates(run: RunRecord, measurement: Measurement) -> int:
    return measurement.version - run.measurements[0].version


def _last_by(run: RunRecord, updates: int) -> Measurement:
    return [one for one in run.measurements if _updates(run, one) <= updates][-1]
