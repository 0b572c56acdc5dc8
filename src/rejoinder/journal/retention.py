"""Deleting old conversations, whole sessions at a time, oldest first; and how large things are.

A session goes only when it is closed and nothing of it may still be learned from: no open turn, no
judging, no ready sample, no sample of a step that a restart might take back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.journal.database import driver
from rejoinder.journal.schema import (
    consumption,
    content_refs,
    contents,
    judge_jobs,
    lineages,
    metadata,
    policy_versions,
    samples,
    sessions,
    turns,
)
from rejoinder.types import Json, TurnState, VersionState

SESSIONS_AT_ONCE = 20
"""Deleted in one transaction, so that serving is not held up."""
PAGES_AT_ONCE = 256
"""Given back to the file system in one transaction: 1 MiB."""


def delete_oldest(connection: Connection, closed_before: float | None) -> tuple[int, int]:
    """Delete up to ``SESSIONS_AT_ONCE`` of the oldest deletable sessions.

    Returns how many sessions and turns were deleted.
    """
    query = sa.select(sessions.c.session_id).where(sessions.c.closed_at.is_not(None), ~_needed())
    if closed_before is not None:
        query = query.where(sessions.c.closed_at < closed_before)
    doomed = connection.scalars(query.order_by(sessions.c.closed_at).limit(SESSIONS_AT_ONCE)).all()
    return len(doomed), delete_whole(connection, doomed)


def delete_whole(connection: Connection, session_ids: Sequence[str]) -> int:
    """Delete sessions with all that is theirs alone; returns how many turns were deleted."""
    gone = connection.execute(sa.delete(turns).where(turns.c.session_id.in_(session_ids)))
    _delete_contents(connection, session_ids)
    connection.execute(sa.delete(sessions).where(sessions.c.session_id.in_(session_ids)))
    return gone.rowcount


def kept_sessions(connection: Connection) -> dict[str, int]:
    """Count the sessions that stay, by why: ``open``, ``needed``, or ``within`` the limits."""
    why = sa.case((sessions.c.closed_at.is_(None), "open"), (_needed(), "needed"), else_="within")
    each = sa.select(why.label("why")).select_from(sessions).subquery()
    query = sa.select(each.c.why, sa.func.count()).group_by(each.c.why)
    found = {reason: int(count) for reason, count in connection.execute(query)}
    return {reason: found.get(reason, 0) for reason in ("open", "needed", "within")}


def used_bytes(connection: Connection) -> int:
    """Return the bytes in use, free pages of the file left out."""
    pages, free, size = (
        int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def give_back(connection: Connection) -> int:
    """Return up to ``PAGES_AT_ONCE`` free pages to the file system; says how many more can be.

    None can of a file that another program has made anew, as from a dump: it keeps them for itself.
    """
    count = "PRAGMA freelist_count"
    before = int(connection.exec_driver_sql(count).scalar_one())
    # Each step frees a page; only fetching from the driver itself takes all the steps.
    driver(connection).execute(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})").fetchall()
    left = int(connection.exec_driver_sql(count).scalar_one())
    return left if left < before else 0


def size_report(connection: Connection) -> Json:
    """Return rows and bytes of each table, its indexes included, and of the whole file.

    ``bytes`` of a table is None where this SQLite was built without its size table.
    """
    report: Json = {}
    sizes = _table_bytes(connection)
    for table in metadata.sorted_tables:
        rows = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
        report[table.name] = {"rows": rows, "bytes": sizes.get(table.name)}
    return {"bytes": used_bytes(connection), "tables": report}


def _needed() -> sa.ColumnElement[bool]:
    """Of a session: something of it may still be judged, trained or freed by a rewind."""
    mine = turns.c.session_id == sessions.c.session_id
    busy = sa.exists().where(mine, turns.c.state.in_((TurnState.OPEN, TurnState.JUDGING)))
    queued = (
        sa.exists()
        .where(mine, samples.c.turn_id == turns.c.turn_id, samples.c.queued == 1)
        .correlate(sessions)
    )
    judging = sa.exists().where(mine, judge_jobs.c.turn_id == turns.c.turn_id).correlate(sessions)
    durable = (
        sa.select(sa.func.max(policy_versions.c.version))
        .where(
            policy_versions.c.lineage_id == lineages.c.lineage_id,
            policy_versions.c.checkpoint_uri.is_not(None),
            policy_versions.c.state != VersionState.ORPHANED,
        )
        .correlate(lineages)
        .scalar_subquery()
    )
    undoable = (
        sa.exists()
        .where(
            mine,
            samples.c.turn_id == turns.c.turn_id,
            consumption.c.sample_id == samples.c.sample_id,
            lineages.c.lineage_id == consumption.c.lineage_id,
            lineages.c.closed_at.is_(None),
            consumption.c.version > sa.func.coalesce(durable, lineages.c.from_version),
        )
        .correlate(sessions)
    )
    return sa.or_(busy, queued, judging, undoable)


def _delete_contents(connection: Connection, session_ids: Sequence[str]) -> None:
    """Delete the contents that no other session refers to."""
    mine = content_refs.c.session_id.in_(session_ids)
    digests = connection.scalars(sa.select(content_refs.c.digest).where(mine).distinct()).all()
    connection.execute(sa.delete(content_refs).where(mine))
    for start in range(0, len(digests), 500):
        connection.execute(
            sa.delete(contents).where(
                contents.c.digest.in_(digests[start : start + 500]),
                ~sa.exists().where(content_refs.c.digest == contents.c.digest),
            )
        )


def _table_bytes(connection: Connection) -> dict[str, int]:
    try:
        rows = connection.exec_driver_sql(
            "SELECT m.tbl_name, SUM(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name"
            " GROUP BY m.tbl_name"
        )
    except sa.exc.OperationalError:  # this SQLite has no size table
        return {}
    return {name: int(size) for name, size in rows}


def cutoff(keep_days: float | None) -> float | None:
    """Return the closing time before which a session is too old."""
    return None if keep_days is None else time.time() - keep_days * 86400
