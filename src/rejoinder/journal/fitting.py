"""Which waiting samples the algorithm that trains now can learn from; others were made for another.

A sample that cannot teach would fill a batch and change nothing in it. It is no loss: the algorithm
it was made for gets it back.
"""

from __future__ import annotations

import time
from collections import defaultdict

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.journal import leasing
from rejoinder.journal.base import SampleRule, SampleSpec
from rejoinder.journal.schema import hints, samples, turns, verdicts
from rejoinder.types import Fate, Judgement, TurnState, Vote

_AT_ONCE = 500
"""Ids in one statement."""


def misfits(connection: Connection, policy: str, rule: SampleRule) -> tuple[list[str], list[str]]:
    """Return the samples to put aside, and those that were put aside and fit again."""
    aside = sa.and_(samples.c.fate == Fate.OTHER_ALGORITHM, turns.c.state == TurnState.SAMPLED)
    rows = connection.execute(
        sa.select(samples.c.sample_id, samples.c.turn_id, samples.c.queued, turns.c.feedback)
        .join(turns, turns.c.turn_id == samples.c.turn_id)
        .where(samples.c.policy == policy, sa.or_(samples.c.queued == 1, aside))
    ).all()
    scores, texts = _scores(connection, policy), _hints(connection, policy)
    unfit, fit = list[str](), list[str]()
    for row in rows:
        score = scores.get(row.turn_id) if row.feedback is None else row.feedback
        why = Fate.NO_SIGNAL if score is None else None
        judgement = Judgement(score, (Vote(score),), "", why)
        is_fit = isinstance(rule.sample_spec(judgement, texts[row.turn_id]), SampleSpec)
        if is_fit != bool(row.queued):
            (fit if is_fit else unfit).append(row.sample_id)
    return unfit, fit


def fit_samples(
    connection: Connection, lease: str, fence: int, policy: str, rule: SampleRule
) -> int:
    """Put aside what the algorithm cannot learn from; see ``TrainJournal.fit_samples``.

    Raises:
        LeaseLost: the fence is not the lease's.
    """
    leasing.check(connection, lease, fence)
    unfit, fit = misfits(connection, policy, rule)
    _mark(connection, unfit, {"queued": 0, "fate": Fate.OTHER_ALGORITHM, "ended_at": time.time()})
    _mark(connection, fit, {"queued": 1, "fate": None, "ended_at": None})
    return len(unfit)


def _mark(connection: Connection, sample_ids: list[str], values: dict[str, object]) -> None:
    for start in range(0, len(sample_ids), _AT_ONCE):
        some = samples.c.sample_id.in_(sample_ids[start : start + _AT_ONCE])
        connection.execute(sa.update(samples).where(some).values(values))


def _scores(connection: Connection, policy: str) -> dict[str, int]:
    """Return the judge's score by turn: the first that is not neutral, as it decides."""
    found: dict[str, int] = {}
    for turn_id, score in connection.execute(
        sa.select(verdicts.c.turn_id, verdicts.c.score)
        .where(verdicts.c.score.is_not(None), _concerned(verdicts.c.turn_id, policy))
        .order_by(verdicts.c.created_at)
    ):
        found[turn_id] = found.get(turn_id) or score
    return found


def _hints(connection: Connection, policy: str) -> defaultdict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for turn_id, text in connection.execute(
        sa.select(hints.c.turn_id, hints.c.text)
        .where(_concerned(hints.c.turn_id, policy))
        .order_by(hints.c.turn_id, hints.c.position)
    ):
        found[turn_id].append(text)
    return found


def _concerned(turn_id: sa.Column[str], policy: str) -> sa.ColumnElement[bool]:
    waiting = sa.or_(samples.c.queued == 1, samples.c.fate == Fate.OTHER_ALGORITHM)
    return turn_id.in_(sa.select(samples.c.turn_id).where(samples.c.policy == policy, waiting))
