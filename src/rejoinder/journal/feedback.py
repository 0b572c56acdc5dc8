"""Explicit feedback: a person's own score outranks the verdict until its sample is consumed.

It outranks nothing else: hints of the turn stay, and where the algorithm learns from hints, what
the person says next is still read for them. So are the words beside the score: the person who may
talk to the policy wrote them about this answer, so that a directive in them may be a hint as one in
a reply may (rule 6). They wait among the next states, with a kind of their own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection

from rejoinder.errors import JournalError
from rejoinder.journal import statements as sql
from rejoinder.journal.base import SampleRule
from rejoinder.journal.columns import digest_of, encode_messages, encode_votes, valid_text
from rejoinder.journal.lineages import consumed_now
from rejoinder.journal.records import FEEDBACK, FeedbackResult, SampleSpec, judgement_of
from rejoinder.journal.samples import cancel_sample, put_sample
from rejoinder.journal.schema import (
    feedback,
    hints,
    judge_jobs,
    next_states,
    samples,
    sessions,
    turns,
    verdicts,
)
from rejoinder.types import Fate, Judgement, Message, Scope, TurnState, Vote, new_id

PROVISIONAL = (Fate.NO_NEXT_STATE, Fate.AMBIGUOUS_PARENT)
"""Fates that a later event may lift."""


class ScoreRule:
    """What a score makes where no algorithm is named: learns from scores alone. See ``SampleRule``.

    For journals of processes that take no feedback.
    """

    needs_hints = False

    def sample_spec(self, judgement: Judgement, hints: Sequence[str] = ()) -> SampleSpec | Fate:
        """A clear score makes a sample."""
        if judgement.score:
            return SampleSpec(float(judgement.score), tuple(hints))
        return judgement.why or Fate.NEUTRAL


SCORES_TEACH = ScoreRule()


def record_feedback(
    connection: Connection,
    scope: Scope,
    completion_id: str,
    choice: int,
    score: int,
    text: str | None,
    rule: SampleRule,
) -> FeedbackResult:
    """Store a score for a completion of the scope's tenant and key, and let it count if it can.

    ``rule`` says whether the score makes a sample, alone or with the turn's hints.

    Raises:
        JournalError: the score is none of -1, 0 and +1.
    """
    text = None if text is None else valid_text(text)
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
    outcome = "accepted"
    if late:
        outcome = Fate.LATE_FEEDBACK.value
    elif _never_trains(turn):
        outcome = "never_trains"
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
        if text and text.strip() and rule.needs_hints:
            _queue_text(connection, turn, text)
        if _may_train(turn):
            apply_feedback(connection, turn.turn_id, rule)
    return FeedbackResult(outcome, turn.turn_id)


def apply_feedback(connection: Connection, turn_id: str, rule: SampleRule) -> None:
    """Make the stored score the turn's verdict: makes, changes or cancels its sample.

    Judging ends, unless the reply may still bring a hint.
    """
    turn = connection.execute(sa.select(turns).where(turns.c.turn_id == turn_id)).one()
    drawn = _drawn(connection, turn_id)
    may_be_hinted = rule.needs_hints and not drawn and not turn.decisive
    is_queued = may_be_hinted and _judge_anew(connection, turn_id)
    if not may_be_hinted:
        cancel_judging(connection, turn_id, "feedback")
    said = rule.sample_spec(judgement_of(turn.feedback), drawn)
    state, fate = TurnState.SAMPLED, None
    if isinstance(said, SampleSpec):
        put_sample(connection, turn, said)
    else:
        cancel_sample(connection, turn_id, said)
        state, fate = (TurnState.JUDGING, None) if is_queued else (TurnState.JUDGED, said)
    connection.execute(
        sa.update(turns)
        .where(turns.c.turn_id == turn_id)
        .values(state=state, fate=fate, decisive=int(not may_be_hinted))
    )


def _drawn(connection: Connection, turn_id: str) -> Sequence[str]:
    return connection.scalars(
        sa.select(hints.c.text).where(hints.c.turn_id == turn_id).order_by(hints.c.position)
    ).all()


def _queue_text(connection: Connection, turn: Any, text: str) -> None:
    """Queue the words beside a score for a hint, also where a verdict had decided without one.

    As of a reply, the outcome says what becomes of them: not read where hints are there already.
    """
    if not _drawn(connection, turn.turn_id):
        connection.execute(
            sa.update(turns).where(turns.c.turn_id == turn.turn_id).values(decisive=0)
        )

    def store(data: bytes) -> bytes:
        digest = digest_of(data)
        sql.INSERT_CONTENT.many(connection, [{"digest": digest, "data": data}])
        sql.INSERT_CONTENT_REF.many(connection, [{"turn_id": turn.turn_id, "digest": digest}])
        return digest

    row = {
        "turn_id": turn.turn_id,
        "digest": digest_of(b"feedback\0" + text.encode()),
        "child_id": new_id(),
        "job_id": new_id(),
        "kind": "feedback",
        "messages": encode_messages([Message("user", text)], store),
        "created_at": time.time(),
    }
    sql.INSERT_NEXT_STATE.many(connection, [row])
    sql.QUEUE_JUDGING.many(connection, [row])


def _judge_anew(connection: Connection, turn_id: str) -> bool:
    """Give all jobs of a turn back, claimed ones too, so that each learns of the score.

    Returns whether there are any. What was computed without the score will be refused.
    """
    jobs = sa.update(judge_jobs).where(judge_jobs.c.turn_id == turn_id)
    changed = connection.execute(
        jobs.values(owner=None, fence=judge_jobs.c.fence + 1, due_at=time.time(), attempt=0)
    )
    return bool(changed.rowcount)


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


def _never_trains(turn: Any) -> bool:
    if turn.state == TurnState.OPEN:  # the score waits for its answer
        return turn.planned_fate is not None or turn.superseded_by is not None
    return not _may_train(turn)


def _store_verdict(connection: Connection, turn: Any, score: int, text: str | None) -> None:
    clause = insert(verdicts).values(
        verdict_id=new_id(),
        turn_id=turn.turn_id,
        digest=b"",
        fingerprint=FEEDBACK,
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
