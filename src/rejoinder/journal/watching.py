"""Heartbeats, counters and evaluations."""

from __future__ import annotations

import time

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.journal.columns import decode_json, encode_json
from rejoinder.journal.records import RoleReport
from rejoinder.journal.schema import evaluations, role_reports
from rejoinder.types import Json, new_id


def reports(connection: Connection) -> list[RoleReport]:
    """Return the newest heartbeat of each role instance, newest first."""
    rows = connection.execute(sa.select(role_reports).order_by(role_reports.c.seen_at.desc()))
    return [
        RoleReport(
            role=row.role,
            instance=row.instance,
            pid=row.pid,
            state=row.state,
            detail=decode_json(row.detail),
            last_error=row.last_error,
            last_error_at=row.last_error_at,
            started_at=row.started_at,
            seen_at=row.seen_at,
            pid_space=row.pid_space or "",
        )
        for row in rows
    ]


def add_evaluation(
    connection: Connection, policy: str, version: int, name: str, score: float, detail: Json
) -> None:
    """Keep an evaluation result with its version."""
    connection.execute(
        sa.insert(evaluations).values(
            evaluation_id=new_id(),
            policy=policy,
            version=version,
            name=name,
            score=score,
            detail=encode_json(detail),
            created_at=time.time(),
        )
    )
