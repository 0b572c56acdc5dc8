"""What ``rejoinder status`` shows."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from rejoinder.types import Json


def status(connection: Connection, policy: str, max_staleness: int, now: float) -> Json:
    """Return the document."""
    return {}
