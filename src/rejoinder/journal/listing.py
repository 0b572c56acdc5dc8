"""Which conversations there are: what a person chooses from who wants to see or delete one.

Keys of an entry: ``session``, ``external`` (what its client calls it), ``tenant``, ``key``,
``user``, ``created_at``, ``last_at``, ``closed_at``, ``turns`` and ``begins``, the last message of
its first request ({role, text}; None where nothing was asked).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.journal.deletion import within
from rejoinder.journal.payloads import read_conversation
from rejoinder.journal.schema import sessions, turns
from rejoinder.types import Json


def list_sessions(
    connection: Connection, limit: int, tenant: str | None, key: str | None, user: str | None
) -> list[Json]:
    """Return the sessions with the newest turns, newest first; see the module for the keys."""
    query = (
        sa.select(sessions)
        .where(*within(tenant, key, user))
        .order_by(sessions.c.last_at.desc(), sessions.c.session_id.desc())
        .limit(limit)
    )
    return [_entry(connection, row) for row in connection.execute(query).all()]


def _entry(connection: Connection, row: Any) -> Json:
    number, first = connection.execute(
        sa.select(sa.func.count(), sa.func.min(turns.c.turn_id)).where(
            turns.c.session_id == row.session_id
        )
    ).one()
    return {
        "session": row.session_id,
        "external": row.external,
        "tenant": row.tenant,
        "key": row.key_name,
        "user": row.user_name,
        "created_at": row.created_at,
        "last_at": row.last_at,
        "closed_at": row.closed_at,
        "turns": number,
        "begins": None if first is None else _begins(connection, first),
    }


def _begins(connection: Connection, turn_id: str) -> Json | None:
    asked = read_conversation(connection, turn_id)
    return {"role": asked[-1].role, "text": asked[-1].content} if asked else None
