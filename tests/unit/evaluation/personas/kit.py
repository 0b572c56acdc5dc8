"""Runs made by hand, for tests of what is computed from them."""

from __future__ import annotations

from collections.abc import Sequence

from fake_gateway import GOOD
from rejoinder.evaluation.personas.records import (
    Ended,
    Measurement,
    Rates,
    RunRecord,
    SessionRecord,
)
from rejoinder.evaluation.statistics import Share
from rejoinder.evaluation.text import content_words


def on_topic(question: str) -> str:
    """An answer that suits nearly all questions, without a copy of them."""
    return GOOD.format(topic=" or ".join(content_words(question)))


def session(number: int, passes: bool, persona: str = "calm") -> SessionRecord:
    return SessionRecord(
        number=number,
        persona=persona,
        task="How?",
        first_answer="So.",
        version=0,
        faults=() if passes else ("list",),
        right=None,
        answers=1,
        content=passes,
    )


def measured(
    version: int,
    hits: int,
    sessions: int = 0,
    right: int | None = None,
    persona: str = "calm",
    failed: int = 0,
) -> Measurement:
    """A version that satisfies ``hits`` of 10, after so many sessions."""
    of = 0 if right is None else 10
    rates = Rates(Share(hits, 10), Share(right or 0, of), {"list": 10 - hits}, failed)
    return Measurement(version, (version,), sessions, 1.0, {persona: rates}, 0.01 * version)


def run(
    passes: str = "",
    measurements: Sequence[Measurement] = (measured(0, 0),),
    method: str = "binary",
    seed: int = 0,
    persona: str = "calm",
    ended: Ended = Ended.UPDATES,
) -> RunRecord:
    """A run whose first answers passed where ``passes`` has a ``+``."""
    sessions = [session(n, mark == "+", persona) for n, mark in enumerate(passes, 1)]
    return RunRecord(
        method=method,
        personas=(persona,),
        seed=seed,
        settings={"benchmark": {"updates": 2, "sessions": 20}},
        ended=ended,
        updates=measurements[-1].version,
        samples=32,
        seconds=9.5,
        sessions=tuple(sessions),
        measurements=tuple(measurements),
        agreement=Share(3, 4),
        no_verdicts=1,
        lost_sessions=0,
        requests=50,
        failed_requests=0,
        failures=(),
    )
