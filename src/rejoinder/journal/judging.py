"""The judging queue: fenced claims, and judgements committed with their effects."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection

from rejoinder.errors import JournalError
from rejoinder.journal import statements as sql
from rejoinder.journal.columns import encode_votes, valid_text
from rejoinder.journal.payloads import read_conversation, read_messages
from rejoinder.journal.records import JudgeTask, SampleSpec
from rejoinder.journal.samples import put_sample
from rejoinder.journal.schema import answers, judge_jobs, next_states, turns, verdicts
from rejoinder.types import Fate, Judgement, Message, TurnState, new_id

_OPEN = (Fate.NO_HINT, Fate.HINT_FAILED)
_LONGEST_WHY = 500
"""Characters that are kept of why a reply gave no hint."""


def claim(connection: Connection, owner: str, limit: int, lease_s: float) -> list[str]:
    """Lease the oldest due jobs, those of expired leases included; returns their ids."""
    now = time.time()
    job_ids = connection.scalars(
        sa.select(judge_jobs.c.job_id)
        .where(judge_jobs.c.due_at <= now)
        .order_by(judge_jobs.c.created_at)
        .limit(limit)
    ).all()
    connection.execute(
        sa.update(judge_jobs)
        .where(judge_jobs.c.job_id.in_(job_ids))
        .values(
            owner=owner,
            due_at=now + lease_s,
            fence=judge_jobs.c.fence + 1,
            attempt=judge_jobs.c.attempt + 1,
        )
    )
    return list(job_ids)


def read_tasks(connection: Connection, job_ids: list[str], owner: str) -> list[JudgeTask]:
    """Read what a judge may see of claimed jobs; jobs cancelled meanwhile are left out."""
    rows = connection.execute(
        sa.select(judge_jobs, answers.c.message, next_states.c.messages, turns.c.feedback)
        .join(answers, answers.c.turn_id == judge_jobs.c.turn_id)
        .join(turns, turns.c.turn_id == judge_jobs.c.turn_id)
        .join(
            next_states,
            (next_states.c.turn_id == judge_jobs.c.turn_id)
            & (next_states.c.digest == judge_jobs.c.digest),
        )
        .where(judge_jobs.c.job_id.in_(job_ids), judge_jobs.c.owner == owner)
        .order_by(judge_jobs.c.created_at)
    )
    return [_task(connection, row) for row in rows]


def _task(connection: Connection, row: sa.Row[Any]) -> JudgeTask:
    """Read one job; one that cannot be read says so instead of taking the others with it."""
    nothing, unreadable = Message("assistant", ""), None
    context: tuple[Message, ...] = ()
    answer, next_state = nothing, context
    try:
        context = read_conversation(connection, row.turn_id)
        answer = read_messages(connection, row.message)[0]
        next_state = read_messages(connection, row.messages)
    except (JournalError, ValueError, LookupError, TypeError, AttributeError) as error:
        # What is stored is damaged or not there. Errors of the database itself are not caught.
        unreadable = f"{type(error).__name__}: {error}"
        context, answer, next_state = (), nothing, ()
    return JudgeTask(
        job_id=row.job_id,
        fence=row.fence,
        turn_id=row.turn_id,
        tenant=row.tenant,
        policy=row.policy,
        attempt=row.attempt,
        context=context,
        answer=answer,
        next_state=next_state,
        digest=row.digest,
        unreadable=unreadable,
        feedback=row.feedback,
    )


def commit(
    connection: Connection,
    task: JudgeTask,
    judgement: Judgement | None,
    sample: SampleSpec | None,
    fate: Fate | None,
    no_hint: str | None,
) -> bool:
    """Store a judgement with its effects; False if the job is no longer this judge's.

    Superseding and feedback remove the job or its fence, so that the job's row alone decides.
    """
    held = connection.execute(
        sa.delete(judge_jobs).where(
            judge_jobs.c.job_id == task.job_id, judge_jobs.c.fence == task.fence
        )
    )
    if not held.rowcount:
        return False
    hints = sample.hints if sample is not None else ()
    kind = _end_next_state(connection, task, _outcome(judgement, hints), no_hint)
    if judgement is not None:
        _store_verdict(connection, task, judgement, kind)
    turn = connection.execute(sa.select(turns).where(turns.c.turn_id == task.turn_id)).one()
    if turn.decisive:  # an earlier next state has decided; this one is recorded
        _count_dropped(connection, hints, "decided")
        return True
    if turn.state == TurnState.SAMPLED and not hints:
        return True  # a person's score has made the sample, and the reply adds nothing
    decisive = int(_decides(turn, judgement, sample, fate))
    if sample is not None:
        if not put_sample(connection, turn, sample):
            _count_dropped(connection, hints, "late")
        state, fate = TurnState.SAMPLED, None
    else:
        state, fate = _state_without_sample(connection, turn, judgement, fate)
    connection.execute(
        sa.update(turns)
        .where(turns.c.turn_id == task.turn_id)
        .values(state=state, fate=fate, decisive=decisive)
    )
    if state is not TurnState.JUDGING and decisive:
        _cancel_unclaimed(connection, task.turn_id)
    return True


def retry(
    connection: Connection, task: JudgeTask, after_s: float, error: str, *, counts: bool
) -> None:
    """Give a job back; nothing happens if it is no longer this judge's."""
    connection.execute(
        sa.update(judge_jobs)
        .where(judge_jobs.c.job_id == task.job_id, judge_jobs.c.fence == task.fence)
        .values(
            owner=None,
            fence=judge_jobs.c.fence + 1,
            due_at=time.time() + after_s,
            last_error=valid_text(error[:2000]),
            attempt=task.attempt if counts else task.attempt - 1,
        )
    )


def _outcome(judgement: Judgement | None, hints: Sequence[str]) -> str:
    """Return what the reading of a next state gave."""
    if judgement is None:
        return "hint" if hints else "no_hint"
    return "no_verdict" if judgement.score is None else "verdict"


def _decides(
    turn: Any, judgement: Judgement | None, sample: SampleSpec | None, fate: Fate | None
) -> bool:
    """Whether no later reply can change what the turn teaches.

    A verdict decides; but where only hints teach, a later reply may still bring one.
    """
    if turn.feedback is not None:
        return sample is not None and bool(sample.hints)
    if sample is not None:
        return True
    return judgement is not None and judgement.score in (-1, 1) and fate not in _OPEN


def _count_dropped(connection: Connection, hints: Sequence[str], reason: str) -> None:
    """Count hints that came too late to teach, in the transaction that drops them."""
    if hints:
        row = {"role": "judge", "name": "dropped_hints", "reason": reason, "amount": len(hints)}
        sql.UPSERT_COUNTER.many(connection, [row])


def _end_next_state(
    connection: Connection, task: JudgeTask, outcome: str, no_hint: str | None
) -> str:
    """Record what became of the next state; returns its kind."""
    why = None if no_hint is None else valid_text(no_hint[:_LONGEST_WHY])
    which = (next_states.c.turn_id == task.turn_id) & (next_states.c.digest == task.digest)
    connection.execute(sa.update(next_states).where(which).values(outcome=outcome, no_hint=why))
    return str(connection.execute(sa.select(next_states.c.kind).where(which)).scalar_one())


def _store_verdict(
    connection: Connection, task: JudgeTask, judgement: Judgement, kind: str
) -> None:
    """Insert the verdict; a call repeated after a crash finds its key taken and adds nothing."""
    connection.execute(
        insert(verdicts)
        .values(
            verdict_id=new_id(),
            turn_id=task.turn_id,
            digest=task.digest,
            fingerprint=judgement.fingerprint,
            policy=task.policy,
            source="judge",
            kind=kind,
            score=judgement.score,
            why=judgement.why,
            votes=encode_votes(judgement.votes),
            seconds=judgement.seconds,
            created_at=time.time(),
        )
        .on_conflict_do_nothing()
    )


def _state_without_sample(
    connection: Connection, turn: Any, judgement: Judgement | None, fate: Fate | None
) -> tuple[TurnState, Fate | None]:
    """Return where a turn stands after a judgement that gave no sample."""
    said = None if judgement is None else judgement.score
    score = said if turn.feedback is None else turn.feedback
    if score in (-1, 1):
        return TurnState.JUDGED, fate or Fate.NO_SIGNAL
    left = sa.select(judge_jobs.c.job_id).where(judge_jobs.c.turn_id == turn.turn_id).limit(1)
    if connection.execute(left).first() is not None:
        return TurnState.JUDGING, None
    if score is None:
        neutral = sa.select(verdicts.c.verdict_id).where(
            verdicts.c.turn_id == turn.turn_id, verdicts.c.score == 0
        )
        if connection.execute(neutral).first() is None:
            why = Fate.NO_SIGNAL if judgement is None else judgement.why
            return TurnState.NO_VERDICT, fate or why or Fate.JUDGE_FAILED
        return TurnState.JUDGED, fate if fate in _OPEN else Fate.NEUTRAL
    return TurnState.JUDGED, fate or Fate.NEUTRAL


def _cancel_unclaimed(connection: Connection, turn_id: str) -> None:
    """Spare the judge what cannot count any more; calls under way may still be recorded."""
    mine = (judge_jobs.c.turn_id == turn_id) & judge_jobs.c.owner.is_(None)
    digests = connection.scalars(sa.select(judge_jobs.c.digest).where(mine)).all()
    connection.execute(sa.delete(judge_jobs).where(mine))
    connection.execute(
        sa.update(next_states)
        .where(next_states.c.turn_id == turn_id, next_states.c.digest.in_(digests))
        .values(outcome="decided")
    )


def any_due(connection: Connection) -> bool:
    """Return whether a claim would find something; a read, so that idle polling never writes."""
    due = sa.select(judge_jobs.c.job_id).where(judge_jobs.c.due_at <= time.time()).limit(1)
    return connection.execute(due).first() is not None
