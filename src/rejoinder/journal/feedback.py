"""Explicit feedback: a person's own score outranks the judge until its sample is consumed."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection

from rejoinder.errors import JournalError
from rejoinder.journal.base import FeedbackResult
from rejoinder.journal.columns import encode_votes
from rejoinder.journal.lineages import consumed_now
from rejoinder.journal.samples import cancel_sample, replace_sample
from rejoinder.journal.schema import (
    feedback,
    judge_jobs,
    next_states,
    samples,
    sessions,
    turns,
    verdicts,
)
from rejoinder.types import Fate, Scope, TurnState, Vote, new_id

PROVISIONAL = (Fate.NO_NEXT_STATE, Fate.AMBIGUOUS_PARENT)
"""Fates that a later event may lift."""
FINGERPRINT = "feedback"
"""Stands for the judge in the verdict's key: a later score replaces an earlier one."""


def record_feedback(
    connection: Connection,
    scope: Scope,
    completion_id: str,
    choice: int,
    score: int,
    text: str | None,
) -> FeedbackResult:
    """Store a score for a completion of the scope's tenant and key, and let it count if it can.

    Raises:
        JournalError: the score is none of -1, 0 and +1.
    """
    if score not in (-1, 0, 1):
        raise JournalError(f"a feedback score is -1, 0 or +1, not {score!r}")
    turn = connection.execute(
        sa.select(turns)
        .join(sessions, sessions.c.session_id == turns.c.session_id)
        .where(
            turns.c.completion_id == completion_id,
            turns.c.choice == choice,
            turns.c.tenant == scope.tenant,
            sessions.c.key_name == scope.key,
        )
    ).first()
    if turn is None:
        return FeedbackResult("unknown")
    sample_id = connection.execute(
        sa.select(samples.c.sample_id).where(samples.c.turn_id == turn.turn_id)
    ).scalar()
    late = sample_id is not None and consumed_now(connection, turn.policy, sample_id)
    outcome = Fate.LATE_FEEDBACK.value if late else "accepted"
    connection.execute(
        sa.insert(feedback).values(
            feedback_id=new_id(),
            turn_id=turn.turn_id,
            score=score,
            text=text,
            outcome=outcome,
            created_at=time.time(),
        )
    )
    if not late:
        _store_verdict(connection, turn, score, text)
        connection.execute(
            sa.update(turns).where(turns.c.turn_id == turn.turn_id).values(feedback=score)
        )
        if _may_train(turn):
            apply_feedback(connection, turn.turn_id)
    return FeedbackResult(outcome, turn.turn_id)


def apply_feedback(connection: Connection, turn_id: str) -> None:
    """Make the stored score the turn's signal: ends its judging, makes or cancels its sample."""
    turn = connection.execute(sa.select(turns).where(turns.c.turn_id == turn_id)).one()
    cancel_judging(connection, turn_id, "feedback")
    if turn.feedback:
        replace_sample(connection, turn, float(turn.feedback), "feedback")
        values: dict[str, Any] = {"state": TurnState.SAMPLED, "fate": None, "decisive": 1}
    else:
        cancel_sample(connection, turn_id, Fate.NEUTRAL)
        values = {"state": TurnState.JUDGED, "fate": Fate.NEUTRAL, "decisive": 0}
    connection.execute(sa.update(turns).where(turns.c.turn_id == turn_id).values(values))


def cancel_judging(connection: Connection, turn_id: str, outcome: str) -> None:
    """Remove a turn's judging jobs, claimed ones too; their commits will be refused."""
    connection.execute(sa.delete(judge_jobs).where(judge_jobs.c.turn_id == turn_id))
    connection.execute(
        sa.update(next_states)
        .where(next_states.c.turn_id == turn_id, next_states.c.outcome == "queued")
        .values(outcome=outcome)
    )


def _may_train(turn: Any) -> bool:
    if turn.superseded_by is not None:
        return False
    if turn.state == TurnState.ENDED:
        return turn.fate in PROVISIONAL
    return turn.state not in (TurnState.OPEN, TurnState.ABORTED)


def _store_verdict(connection: Connection, turn: Any, score: int, text: str | None) -> None:
    clause = insert(verdicts).values(
        verdict_id=new_id(),
        turn_id=turn.turn_id,
        digest=b"",
        fingerprint=FINGERPRINT,
        policy=turn.policy,
        source="feedback",
        kind="feedback",
        score=score,
        why=None,
        votes=encode_votes([Vote(score, text or "")]),
        seconds=0.0,
        created_at=time.time(),
    )
    connection.execute(
        clause.on_conflict_do_update(
            index_elements=["turn_id", "digest", "fingerprint"],
            set_={name: clause.excluded[name] for name in ("score", "votes", "created_at")},
        )
    )
