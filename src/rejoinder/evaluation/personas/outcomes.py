"""What runs found, persona by persona: sessions to converge, rates, drift, and their spread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from rejoinder.evaluation.personas.records import Ended, Measurement, RunRecord, SessionRecord
from rejoinder.evaluation.statistics import (
    Duration,
    Estimate,
    mean_over_runs,
    ratio_of_means,
    restricted,
)

STREAK = 3
"""First answers in a row that satisfy."""
CONVERGED_RATE = 0.8
"""Of held-out first answers, in two measurements one after the other: of many measurements, a
single one may be luck, and so may three answers in a row."""


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
class RunCurve:
    """The held-out pass rates of one run."""

    points: tuple[tuple[int, float], ...]
    """(updates, rate), in order."""
    ended_converged: bool
    """Whether it ended because all its personas had; without ``until_converged`` none does."""

    def after(self, updates: int) -> tuple[tuple[int, float], ...]:
        """Return how it went on: the rate that held at ``updates``, and what was measured later."""
        held = [rate for point, rate in self.points if point <= updates][-1]
        return ((updates, held), *(one for one in self.points if one[0] > updates))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run of which nobody knows in how many sessions it would have converged, and why."""

    seed: int
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One method on one subject, over seeds."""

    subject: Subject
    method: str
    seeds: tuple[int, ...]
    """Of the runs in these figures: the timed ones; where there are none, all."""
    timed: tuple[int, ...]
    """Seeds whose sessions count; the others are ``left_out``."""
    left_out: tuple[LeftOut, ...]
    converged: tuple[int, ...]
    """Seeds that did, of those timed."""
    horizon: int
    """Sessions of the persona to which the mean is restricted: all timed runs reach it."""
    sessions: Estimate | None
    """Restricted mean of the sessions to converge; None where no run is timed."""
    restricted_sessions: tuple[int, ...]
    """By timed seed."""
    passed_before: Estimate
    passed_after: Estimate
    passed_best: Estimate
    right_before: Estimate | None
    """None where the tasks have no answers."""
    right_after: Estimate | None
    template_after: Estimate | None
    """Of the last version, how much its answers to different tasks share; None: not known."""
    divergence: Estimate | None
    """Of the last version; None where it could not be measured."""
    curve: tuple[CurvePoint, ...]
    """The mean, up to where the shortest run has got."""
    run_curves: tuple[RunCurve, ...]
    """By seed."""
    failures: Failures


@dataclass(frozen=True, slots=True)
class Failures:
    """What went wrong in runs that came to their end nevertheless."""

    requests: int
    lost_sessions: int
    measurements: int
    rollbacks: int
    """Of the trainer by itself, since answers pleased far less."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Sessions to converge of a method, as a multiple of another's, over the seeds of both."""

    subject: Subject
    method: str
    reference: str
    seeds: int
    converged: int
    """Of the method's runs."""
    reference_converged: int
    horizon: int
    """As which runs count that had not converged."""
    ratio: Estimate | None
    """Below 1: the method needs fewer sessions. None: neither converged up to the horizon."""


def sessions_to_streak(sessions: Iterable[SessionRecord]) -> Duration:
    """Return after how many sessions three first answers in a row had passed."""
    row = count = 0
    for count, session in enumerate(sessions, 1):
        row = row + 1 if session.passes else 0
        if row == STREAK:
            return Duration(count, happened=True)
    return Duration(count, happened=False)


def confirmed_rate(
    measured: Sequence[Measurement], persona: str
) -> tuple[Measurement, Measurement] | None:
    """Return the first two measurements in a row that satisfy the persona often enough, if any."""
    pairs = pairwise(measured)
    return next((pair for pair in pairs if all(_is_good(one, persona) for one in pair)), None)


def sessions_to_converge(
    sessions: Sequence[SessionRecord], measured: Sequence[Measurement], persona: str
) -> Duration:
    """Return after how many of the persona's sessions it had converged.

    That is when two measurements one after the other have satisfied at least 0.8 of the held-out
    tasks, *and* three first answers in a row, of sessions begun after the first of the two, have
    passed; whichever comes later.

    Args:
        sessions: of a run, in order.
        measured: its measurements that count.
        persona: whose.
    """
    own = [session for session in sessions if session.persona == persona]
    good = confirmed_rate(measured, persona)
    if good is None:
        return Duration(len(own), happened=False)
    before, confirmed = (sum(session.number <= one.sessions for session in own) for one in good)
    streak = sessions_to_streak(own[before:])
    if not streak.happened:
        return Duration(len(own), happened=False)
    return Duration(max(before + streak.length, confirmed), happened=True)


def outcomes(runs: Sequence[RunRecord]) -> list[Outcome]:
    """Return what each method did on each subject, by subject and method."""
    found: list[Outcome] = []
    for subject in _subjects(runs):
        persona = subject.persona
        watched = [_Watched.of(run, persona) for run in runs if run.personas == subject.personas]
        horizon = _horizon(watched)
        watched.sort(key=lambda one: (one.run.method, one.run.seed))
        for method, group in groupby(watched, key=lambda one: one.run.method):
            found.append(_outcome(subject, method, list(group), horizon))
    return found


def comparisons(found: Sequence[Outcome], reference: str) -> list[Comparison]:
    """Compare every other method with the reference, where they share at least one timed seed."""
    compared: list[Comparison] = []
    for base in (one for one in found if one.method == reference):
        for other in found:
            if other.subject != base.subject or other.method == reference:
                continue
            theirs = dict(zip(base.timed, base.restricted_sessions, strict=True))
            own = dict(zip(other.timed, other.restricted_sessions, strict=True))
            shared = [seed for seed in other.timed if seed in theirs]
            pairs = [(own[seed], theirs[seed]) for seed in shared]
            if not pairs or base.horizon <= 0:
                continue
            ends = len({*other.converged} & {*shared}), len({*base.converged} & {*shared})
            ratio = ratio_of_means(*zip(*pairs, strict=True)) if any(ends) else None
            compared.append(
                Comparison(
                    base.subject, other.method, reference, len(shared), *ends, base.horizon, ratio
                )
            )
    return compared


@dataclass(frozen=True, slots=True)
class _Watched:
    """A run, and how long it was watched until it converged or ended."""

    run: RunRecord
    sessions: int
    """Of the persona."""
    duration: Duration

    @classmethod
    def of(cls, run: RunRecord, persona: str) -> _Watched:
        count = sum(session.persona == persona for session in run.sessions)
        return cls(run, count, sessions_to_converge(run.sessions, run.measured, persona))

    def why_left_out(self, horizon: int) -> str | None:
        """Return why the run is not timed, None if it is.

        One that converged early is left out, too: otherwise, of the runs that a slow machine cut
        short, the lucky ones alone would count.
        """
        if self.run.ended is Ended.TIME and self.sessions < horizon:
            return f"the time was over after {self.sessions} sessions, and {horizon} are compared"
        return None


def _horizon(watched: Sequence[_Watched]) -> int:
    """Return up to how many sessions runs are compared.

    All that were asked for, unless a run waited in vain until it had made all its updates before.
    How fast a machine is must not matter: a run that the time ended sets no horizon.
    """
    limits = [one.run.session_limit for one in watched]
    in_vain = [
        one.sessions
        for one in watched
        if not one.duration.happened and one.run.ended is not Ended.TIME
    ]
    return min([*limits, *in_vain])


def _is_good(measurement: Measurement, persona: str) -> bool:
    return measurement.personas[persona].passed.value >= CONVERGED_RATE


def _subjects(runs: Sequence[RunRecord]) -> list[Subject]:
    pairs = dict.fromkeys(
        Subject(run.personas, persona) for run in runs for persona in run.personas
    )
    return list(pairs)


def _outcome(subject: Subject, method: str, watched: Sequence[_Watched], horizon: int) -> Outcome:
    reasons = {one.run.seed: one.why_left_out(horizon) for one in watched}
    timed = [one for one in watched if reasons[one.run.seed] is None]
    lengths = tuple(restricted(one.duration, horizon) for one in timed)
    # What a run that was cut short had learnt by then is no end to compare others with.
    runs = [one.run for one in timed or watched]
    rates = [[one.personas[subject.persona] for one in run.measured] for run in runs]
    right = all(first.right.of for first, *_ in rates)
    return Outcome(
        subject=subject,
        method=method,
        seeds=tuple(run.seed for run in runs),
        timed=tuple(one.run.seed for one in timed),
        left_out=tuple(LeftOut(seed, why) for seed, why in reasons.items() if why is not None),
        converged=tuple(
            one.run.seed
            for one in timed
            if one.duration.happened and one.duration.length <= horizon
        ),
        horizon=horizon,
        sessions=mean_over_runs(lengths, 0, horizon) if lengths else None,
        restricted_sessions=lengths,
        passed_before=_mean_rate([own[0].passed.value for own in rates]),
        passed_after=_mean_rate([own[-1].passed.value for own in rates]),
        passed_best=_mean_rate([max(one.passed.value for one in own) for own in rates]),
        right_before=_mean_rate([own[0].right.value for own in rates]) if right else None,
        right_after=_mean_rate([own[-1].right.value for own in rates]) if right else None,
        template_after=_mean_of_known([own[-1].template for own in rates], 0.0, 1.0),
        # Estimated from samples, so that it may be a little below zero.
        divergence=_mean_of_known(
            [run.measured[-1].divergence for run in runs], -math.inf, math.inf
        ),
        curve=_curve(runs, subject.persona),
        run_curves=tuple(_run_curve(run, subject.persona) for run in runs),
        failures=Failures(
            requests=sum(one.run.failed_requests for one in watched),
            lost_sessions=sum(one.run.lost_sessions for one in watched),
            rollbacks=sum(one.run.rollbacks for one in watched),
            measurements=sum(len(one.run.measurements) - len(one.run.measured) for one in watched),
        ),
    )


def _mean_rate(values: Sequence[float]) -> Estimate:
    return mean_over_runs(values, 0.0, 1.0)


def _mean_of_known(values: Sequence[float | None], low: float, high: float) -> Estimate | None:
    known = [value for value in values if value is not None]
    return mean_over_runs(known, low, high) if known else None


def _curve(runs: Sequence[RunRecord], persona: str) -> tuple[CurvePoint, ...]:
    """Return the mean curve up to where every run has got.

    A run that did not measure after just so many updates counts with what it measured last: its
    policy had not been looked at since.
    """
    reached = min(run.updates_until(run.measured[-1]) for run in runs)
    points = sorted({run.updates_until(one) for run in runs for one in run.measured})
    return tuple(
        CurvePoint(
            updates,
            _mean_rate([_last_by(run, updates).personas[persona].passed.value for run in runs]),
        )
        for updates in points
        if updates <= reached
    )


def _run_curve(run: RunRecord, persona: str) -> RunCurve:
    return RunCurve(
        tuple((run.updates_until(one), one.personas[persona].passed.value) for one in run.measured),
        run.ended is Ended.CONVERGED,
    )


def _last_by(run: RunRecord, updates: int) -> Measurement:
    return [one for one in run.measured if run.updates_until(one) <= updates][-1]
