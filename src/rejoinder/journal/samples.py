"""Making, replacing and cancelling samples, inside the caller's transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection

from rejoinder.journal.columns import valid_text
from rejoinder.journal.schema import hints, samples
from rejoinder.types import Fate, new_id


def make_sample(
    connection: Connection, turn: Any, reward: float | None, source: str, texts: Sequence[str]
) -> bool:
    """Make a turn's sample; returns False if it has one already (a turn never gives two)."""
    made = connection.execute(
        insert(samples).values(_row(turn, reward, source)).on_conflict_do_nothing()
    )
    if not made.rowcount:
        return False
    if texts:
        connection.execute(
            sa.insert(hints),
            [
                {"turn_id": turn.turn_id, "position": position, "text": valid_text(text)}
                for position, text in enumerate(texts)
            ],
        )
    return True


def replace_sample(connection: Connection, turn: Any, reward: float, source: str) -> None:
    """Make a turn's sample or overwrite its reward; hints of an opposite judgement go."""
    opposite = sa.exists().where(samples.c.turn_id == turn.turn_id, samples.c.reward != reward)
    connection.execute(sa.delete(hints).where(hints.c.turn_id == turn.turn_id, opposite))
    clause = insert(samples).values(_row(turn, reward, source))
    connection.execute(
        clause.on_conflict_do_update(
            index_elements=["turn_id"],
            set_={"reward": reward, "source": source, "queued": 1, "fate": None, "ended_at": None},
        )
    )


def cancel_sample(connection: Connection, turn_id: str, fate: Fate) -> None:
    """Take a turn's sample out of training; nothing happens if there is none."""
    connection.execute(
        sa.update(samples)
        .where(samples.c.turn_id == turn_id, samples.c.fate.is_(None))
        .values(queued=0, fate=fate, ended_at=time.time())
    )


def _row(turn: Any, reward: float | None, source: str) -> dict[str, Any]:
    return {
        "sample_id": new_id(),
        "turn_id": turn.turn_id,
        "session_id": turn.session_id,
        "tenant": turn.tenant,
        "policy": turn.policy,
        "reward": reward,
        "source": source,
        "fate": None,
        "queued": 1,
        "tokens": turn.prompt_tokens + turn.answer_tokens,
        "oldest_version": turn.oldest_version,
        "created_at": time.time(),
        "ended_at": None,
    }
