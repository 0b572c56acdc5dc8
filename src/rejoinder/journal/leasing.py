"""Named leases with a fence: a number that grows with each new holder."""

from __future__ import annotations

import time

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.errors import LeaseLost
from rejoinder.journal.schema import leases


def acquire(connection: Connection, name: str, owner: str, ttl_s: float) -> int | None:
    """Take a lease that is free, expired or already this owner's; None if it is held."""
    now = time.time()
    row = connection.execute(sa.select(leases).where(leases.c.name == name)).first()
    if row is None:
        connection.execute(
            sa.insert(leases).values(name=name, owner=owner, fence=1, expires_at=now + ttl_s)
        )
        return 1
    if row.expires_at > now and row.owner != owner:
        return None
    connection.execute(
        sa.update(leases)
        .where(leases.c.name == name)
        .values(owner=owner, fence=row.fence + 1, expires_at=now + ttl_s)
    )
    return int(row.fence) + 1


def renew(connection: Connection, name: str, fence: int, ttl_s: float) -> None:
    """Prolong a lease; an expired one that nobody has taken is still its holder's.

    Raises:
        LeaseLost: another holder has taken it.
    """
    check(connection, name, fence)
    connection.execute(
        sa.update(leases).where(leases.c.name == name).values(expires_at=time.time() + ttl_s)
    )


def release(connection: Connection, name: str, fence: int) -> None:
    """Let the next holder take it at once; the row stays, so that fences never repeat."""
    connection.execute(
        sa.update(leases)
        .where(leases.c.name == name, leases.c.fence == fence)
        .values(expires_at=0.0)
    )


def check(connection: Connection, name: str, fence: int) -> None:
    """Raise ``LeaseLost`` unless the fence is the lease's, inside the writing transaction."""
    row = connection.execute(sa.select(leases).where(leases.c.name == name)).first()
    if row is None or row.fence != fence:
        holder = "nobody" if row is None else row.owner
        raise LeaseLost(f"lease {name!r} is no longer held under fence {fence}: {holder} has it")
