"""Which waiting samples the algorithm that trains now can learn from; others were made for another.

A sample that cannot teach would fill a batch and change nothing in it. It is no loss: the algorithm
it was made for gets it back. What decides is what the sample holds, its reward and its hints, as in
a step: its turn may have a verdict that it left out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.journal import leasing
from rejoinder.journal.base import SampleRule
from rejoinder.journal.records import SampleSpec, judgement_of
from rejoinder.journal.schema import hints, samples, turns
from rejoinder.types import Fate, Judgement, TurnState, Vote

AT_ONCE = 100
"""Samples in one write transaction, which must not keep answers waiting."""
_NO_REWARD = Judgement(None, (Vote(None),), "", Fate.NO_SIGNAL)


def misfits(
    connection: Connection, policy: str, rule: SampleRule, among: Sequence[str] | None = None
) -> tuple[list[str], list[str]]:
    """Return the samples to put aside, and those that were put aside and fit again.

    ``among`` limits it to some samples; None: all of the policy.
    """
    its_turn = turns.c.turn_id == samples.c.turn_id
    if among is None:
        waiting = sa.or_(samples.c.queued == 1, samples.c.fate == Fate.OTHER_ALGORITHM)
        concerned = sa.and_(samples.c.policy == policy, waiting)
    else:  # by their ids alone: no other index is as good, and the database might choose one
        concerned = samples.c.sample_id.in_(among)
    texts = _hints(connection, concerned)
    unfit, fit = list[str](), list[str]()
    for row in connection.execute(
        sa.select(samples, turns.c.state).join(turns, its_turn).where(concerned)
    ):
        is_fit = isinstance(rule.sample_spec(_said(row.reward), texts[row.turn_id]), SampleSpec)
        is_aside = row.fate == Fate.OTHER_ALGORITHM and row.state == TurnState.SAMPLED
        if row.queued and not is_fit:
            unfit.append(row.sample_id)
        elif is_aside and is_fit:
            fit.append(row.sample_id)
    return unfit, fit


def _hints(
    connection: Connection, concerned: sa.ColumnElement[bool]
) -> defaultdict[str, list[str]]:
    """Return the hints of samples by turn."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for turn_id, text in connection.execute(
        sa.select(hints.c.turn_id, hints.c.text)
        .join(samples, samples.c.turn_id == hints.c.turn_id)
        .where(concerned)
        .order_by(hints.c.turn_id, hints.c.position)
    ):
        found[turn_id].append(text)
    return found


def _said(reward: float | None) -> Judgement:
    """Return the judgement that a sample stands for."""
    return _NO_REWARD if reward is None else judgement_of((reward > 0) - (reward < 0))


def fit_samples(
    connection: Connection,
    lease: str,
    fence: int,
    policy: str,
    rule: SampleRule,
    among: Sequence[str],
) -> int:
    """Put aside, or take back, those of some samples that still need it; returns how many went.

    They are asked for again: a person may have scored one since it was read.

    Raises:
        LeaseLost: the fence is not the lease's.
    """
    leasing.check(connection, lease, fence)
    unfit, fit = misfits(connection, policy, rule, among)
    _mark(connection, unfit, {"queued": 0, "fate": Fate.OTHER_ALGORITHM, "ended_at": time.time()})
    _mark(connection, fit, {"queued": 1, "fate": None, "ended_at": None})
    return len(unfit)


def _mark(connection: Connection, sample_ids: list[str], values: dict[str, object]) -> None:
    if sample_ids:
        chosen = samples.c.sample_id.in_(sample_ids)
        connection.execute(sa.update(samples).where(chosen).values(values))
