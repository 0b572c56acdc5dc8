"""Making and cancelling samples, inside the caller's transaction."""

from __future__ import annotations

import time
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection

from rejoinder.journal.columns import valid_text
from rejoinder.journal.lineages import consumed_now
from rejoinder.journal.records import HintMaker, SampleSpec
from rejoinder.journal.schema import hints, samples
from rejoinder.types import Fate, Json, new_id


def put_sample(connection: Connection, turn: Any, spec: SampleSpec) -> bool:
    """Make a turn's sample, or make the one it has anew; hints are added and never taken away.

    Returns False, changing nothing, if that one is consumed: a turn never gives two.
    """
    known = sa.select(samples.c.sample_id).where(samples.c.turn_id == turn.turn_id)
    sample_id = connection.execute(known).scalar()
    if sample_id is not None and consumed_now(connection, turn.policy, sample_id):
        return False
    row = _row(turn, spec.reward)
    fresh = {name: row[name] for name in ("reward", "source", "queued", "fate", "ended_at")}
    connection.execute(
        insert(samples).values(row).on_conflict_do_update(index_elements=["turn_id"], set_=fresh)
    )
    if spec.hints:
        maker = {} if spec.hinted_by is None else asdict(spec.hinted_by)
        connection.execute(
            insert(hints).on_conflict_do_nothing(),
            [
                {"turn_id": turn.turn_id, "position": position, "text": valid_text(text), **maker}
                for position, text in enumerate(spec.hints)
            ],
        )
    return True


def maker_of(hint: Any) -> Json:
    """Return which hint judge drew a hint, from its row."""
    return {one.name: getattr(hint, one.name) for one in fields(HintMaker)}


def use_of(row: Any) -> Json:
    """Return what a step made of a sample, from the row of its consumption."""
    return {"version": row.version, "untrained": row.untrained}


def cancel_sample(connection: Connection, turn_id: str, fate: Fate) -> None:
    """Take a turn's sample out of training; nothing happens if there is none."""
    connection.execute(
        sa.update(samples)
        .where(samples.c.turn_id == turn_id, samples.c.fate.is_(None))
        .values(queued=0, fate=fate, ended_at=time.time())
    )


def _row(turn: Any, reward: float | None) -> dict[str, Any]:
    by_person = turn.feedback is not None and reward is not None
    return {
        "sample_id": new_id(),
        "turn_id": turn.turn_id,
        "session_id": turn.session_id,
        "tenant": turn.tenant,
        "policy": turn.policy,
        "reward": reward,
        "source": "feedback" if by_person else "judge",
        "fate": None,
        "queued": 1,
        "tokens": turn.prompt_tokens + turn.answer_tokens,
        "oldest_version": turn.oldest_version,
        "created_at": time.time(),
        "ended_at": None,
    }
