"""Lineages, and what counts as consumed in one: its own rows and those it inherits."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.errors import JournalError
from rejoinder.journal.base import Lineage
from rejoinder.journal.schema import consumption, lineages, policies, policy_versions, steps
from rejoinder.types import BASE_VERSION, VersionState, new_id


def open_lineage_row(connection: Connection, policy: str) -> Any:
    """Return the row of the policy's open lineage, or None before the first."""
    return connection.execute(
        sa.select(lineages).where(lineages.c.policy == policy, lineages.c.closed_at.is_(None))
    ).first()


def ensure_lineage(connection: Connection, policy: str) -> Lineage:
    """Return the open lineage; opens the first one from the base.

    Raises:
        JournalError: the policy is not registered.
    """
    row = open_lineage_row(connection, policy)
    if row is None:
        known = connection.execute(sa.select(policies.c.policy).where(policies.c.policy == policy))
        if known.first() is None:
            raise JournalError(
                f"policy {policy!r} is not registered: start the engine or the gateway first, or "
                "correct model.policy"
            )
        insert_lineage(connection, policy, None, BASE_VERSION, replay=False)
        row = open_lineage_row(connection, policy)
    return describe(connection, row)


def insert_lineage(
    connection: Connection, policy: str, parent_id: str | None, from_version: int, *, replay: bool
) -> None:
    """Open a lineage; the caller has closed the one before."""
    connection.execute(
        sa.insert(lineages).values(
            lineage_id=new_id(),
            policy=policy,
            parent_id=parent_id,
            from_version=from_version,
            replay=int(replay),
            created_at=time.time(),
        )
    )


def describe(connection: Connection, row: Any) -> Lineage:
    """Build the public view of a lineage row."""
    head = connection.execute(
        sa.select(sa.func.max(policy_versions.c.version)).where(
            policy_versions.c.lineage_id == row.lineage_id,
            policy_versions.c.policy == row.policy,
            policy_versions.c.state != VersionState.ORPHANED,
        )
    ).scalar()
    head = row.from_version if head is None else head
    newest = connection.execute(
        sa.select(sa.func.max(policy_versions.c.version)).where(
            policy_versions.c.policy == row.policy
        )
    ).scalar()
    step = connection.execute(
        sa.select(steps.c.step).where(steps.c.policy == row.policy, steps.c.version == head)
    ).scalar()
    return Lineage(
        lineage_id=row.lineage_id,
        policy=row.policy,
        parent_id=row.parent_id,
        from_version=row.from_version,
        head_version=head,
        next_step=(step or 0) + 1,
        next_version=(newest or BASE_VERSION) + 1,
    )


def ancestry(connection: Connection, lineage_id: str) -> list[tuple[str, int | None]]:
    """Return the lineages whose consumption counts in this one, itself first.

    The number is the newest version whose consumption counts; None means all. A lineage opened
    with ``replay`` inherits only what was consumed up to the version it starts from.
    """
    found: list[tuple[str, int | None]] = []
    bound: int | None = None
    current: str | None = lineage_id
    while current is not None:
        found.append((current, bound))
        row = connection.execute(sa.select(lineages).where(lineages.c.lineage_id == current)).one()
        if row.replay:
            bound = row.from_version if bound is None else min(bound, row.from_version)
        current = row.parent_id
    return found


def consumed_of(connection: Connection, lineage_id: str, sample_ids: Sequence[str]) -> set[str]:
    """Return which of the samples are consumed in the lineage or inherited as consumed."""
    bounds = dict(ancestry(connection, lineage_id))
    rows = connection.execute(
        sa.select(consumption.c.lineage_id, consumption.c.sample_id, consumption.c.version).where(
            consumption.c.sample_id.in_(sample_ids), consumption.c.lineage_id.in_(list(bounds))
        )
    )
    found = set()
    for row in rows:
        bound = bounds[row.lineage_id]
        if bound is None or row.version <= bound:
            found.add(row.sample_id)
    return found


def consumed_now(connection: Connection, policy: str, sample_id: str) -> bool:
    """Return whether a sample counts as consumed in the policy's open lineage."""
    row = open_lineage_row(connection, policy)
    return row is not None and bool(consumed_of(connection, row.lineage_id, [sample_id]))


def fresh_versions(connection: Connection, lineage: Lineage, max_staleness: int) -> list[int]:
    """Return the versions at most ``max_staleness`` training steps away from the head.

    Distance is counted along the tree of versions, because numbers jump over orphaned and rolled
    back versions. A version beside the chain counts the steps up to the common ancestor and down.
    A step that left the weights as they were, so that its version has its parent's files, counts
    nothing. Nor does what lies between an orphaned version and the one that took its step again:
    a restart goes on with the same optimizer, random state and samples, so both are alike; unless
    only one of the two moved the weights, as with another algorithm.
    """
    columns = (policy_versions.c[name] for name in ("version", "parent", "uri", "step"))
    rows = connection.execute(
        sa.select(*columns, policy_versions.c.lineage_id)
        .where(policy_versions.c.policy == lineage.policy)
        .order_by(policy_versions.c.version)
    ).all()
    files = {row.version: row.uri for row in rows}
    near, same = _Neighbours(set), _Neighbours(set)
    first: dict[tuple[str, int, bool], int] = {}
    for row in rows:
        if row.parent is None:
            continue
        is_moved = files[row.parent] != row.uri
        _join(near if is_moved else same, row.version, row.parent)
        step = (row.lineage_id, row.step, is_moved)
        _join(same, row.version, first.setdefault(step, row.version))
    fresh = ring = _alike({lineage.head_version}, same)
    for _ in range(max_staleness):
        ring = _alike({one for version in ring for one in near[version]} - fresh, same)
        if not ring:
            break
        fresh = fresh | ring
    return sorted(fresh)


_Neighbours: TypeAlias = defaultdict[int, set[int]]


def _join(neighbours: _Neighbours, one: int, other: int) -> None:
    neighbours[one].add(other)
    neighbours[other].add(one)


def _alike(versions: set[int], same: _Neighbours) -> set[int]:
    """Return versions and all that have the weights of one of them."""
    found, left = set(versions), list(versions)
    while left:
        new = same[left.pop()] - found
        found |= new
        left += new
    return found


def replayed_samples(connection: Connection, lineage_id: str, after_version: int) -> list[str]:
    """Return the samples that count as consumed after a version; replay frees them."""
    found: list[str] = []
    for ancestor, bound in ancestry(connection, lineage_id):
        query = sa.select(consumption.c.sample_id).where(
            consumption.c.lineage_id == ancestor, consumption.c.version > after_version
        )
        if bound is not None:
            query = query.where(consumption.c.version <= bound)
        found.extend(connection.scalars(query))
    return found
