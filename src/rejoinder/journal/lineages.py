"""Lineages, and what counts as consumed in one: its own rows and those it inherits."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.errors import JournalError
from rejoinder.journal.records import Lineage
from rejoinder.journal.schema import (
    consumption,
    lineages,
    policies,
    policy_versions,
    samples,
    steps,
)
from rejoinder.types import BASE_VERSION, VersionState, new_id

_AT_ONCE = 500


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
    connection: Connection,
    policy: str,
    parent_id: str | None,
    from_version: int,
    *,
    replay: bool,
    reason: str | None = None,
) -> None:
    """Open a lineage; the caller has closed the one before."""
    connection.execute(
        sa.insert(lineages).values(
            lineage_id=new_id(),
            policy=policy,
            parent_id=parent_id,
            from_version=from_version,
            replay=int(replay),
            reason=reason,
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


def counting(connection: Connection, lineage_id: str) -> dict[str, int | None]:
    """Return the lineages whose consumption counts in this one.

    Those are itself, the ones before it, of which a lineage opened with ``replay`` inherits only
    what was consumed up to the version it starts from, and whatever that version has in its
    weights, which may have trained in a lineage that was left and replayed since.

    Returns:
        of each, the newest version whose consumption counts; None means all.
    """
    found: dict[str, int | None] = {}
    bound: int | None = None
    current: str | None = lineage_id
    while current is not None:
        _widen(found, current, bound)
        row = connection.execute(sa.select(lineages).where(lineages.c.lineage_id == current)).one()
        for holder, newest in _holders(connection, row.policy, row.from_version):
            _widen(found, holder, newest if bound is None else min(newest, bound))
        if row.replay:
            bound = row.from_version if bound is None else min(bound, row.from_version)
        current = row.parent_id
    return found


def _widen(found: dict[str, int | None], lineage_id: str, bound: int | None) -> None:
    known = found.get(lineage_id, BASE_VERSION)
    found[lineage_id] = None if bound is None or known is None else max(known, bound)


def _holders(connection: Connection, policy: str, version: int) -> Iterator[tuple[str, int]]:
    """Yield each lineage that a version's weights come from, and its newest version in them."""
    while version != BASE_VERSION:
        row = connection.execute(
            sa.select(lineages.c.lineage_id, lineages.c.from_version)
            .join(policy_versions, policy_versions.c.lineage_id == lineages.c.lineage_id)
            .where(policy_versions.c.policy == policy, policy_versions.c.version == version)
        ).first()
        if row is None:
            return
        yield row.lineage_id, version
        version = row.from_version


def consumed_of(connection: Connection, lineage_id: str, sample_ids: Iterable[str]) -> set[str]:
    """Return which of the samples are consumed in the lineage or inherited as consumed."""
    return _consumed(connection, counting(connection, lineage_id), sample_ids)


def _consumed(
    connection: Connection, bounds: Mapping[str, int | None], sample_ids: Iterable[str]
) -> set[str]:
    found: set[str] = set()
    for some in _some(sample_ids):
        mine = sa.select(consumption.c.sample_id).where(consumption.c.sample_id.in_(some))
        found.update(connection.scalars(mine.where(_counts(bounds))))
    return found


def is_consumed(connection: Connection, lineage_id: str) -> sa.ColumnElement[bool]:
    """Of a sample, in a query: it is consumed in the lineage or inherited as consumed."""
    mine = consumption.c.sample_id == samples.c.sample_id
    return sa.exists().where(mine, _counts(counting(connection, lineage_id)))


def _counts(bounds: Mapping[str, int | None]) -> sa.ColumnElement[bool]:
    """Of a row of consumption, in a query: it lies within what ``counting`` returned."""
    return sa.or_(
        *(
            sa.and_(
                consumption.c.lineage_id == lineage_id,
                sa.true() if newest is None else consumption.c.version <= newest,
            )
            for lineage_id, newest in bounds.items()
        )
    )


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

    Where the trainer itself has rolled back, what was rolled back from is not among them, however
    near: its answers pleased nobody, and are those of other weights.
    """
    columns = (policy_versions.c[name] for name in ("version", "parent", "uri", "step", "state"))
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
    if _was_opened_by_trainer(connection, lineage.lineage_id):
        fresh = fresh - {row.version for row in rows if row.state == VersionState.REJECTED}
    return sorted(fresh)


def _was_opened_by_trainer(connection: Connection, lineage_id: str) -> bool:
    reason = sa.select(lineages.c.reason).where(lineages.c.lineage_id == lineage_id)
    return connection.execute(reason).scalar() is not None


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


def queue_by_consumption(connection: Connection, old_id: str, new_id: str) -> None:
    """After a rollback, let those samples wait that the new lineage has not consumed, and no other.

    Only what counts in one of the two lineages alone is looked at: of a long history that is
    little, and nobody else writes meanwhile.
    """
    old, new = counting(connection, old_id), counting(connection, new_id)
    lost = _beyond(connection, new, old)
    _set_queued(connection, lost - _consumed(connection, new, lost), 1)
    _set_queued(connection, _beyond(connection, old, new), 0)


def _beyond(
    connection: Connection, less: Mapping[str, int | None], more: Mapping[str, int | None]
) -> set[str]:
    """Return the samples of consumption that counts under some bounds, and not under others."""
    found: set[str] = set()
    for lineage_id, newest in more.items():
        known = less.get(lineage_id, BASE_VERSION)
        if known is None or (newest is not None and newest <= known):
            continue
        later = sa.and_(consumption.c.lineage_id == lineage_id, consumption.c.version > known)
        if newest is not None:
            later = sa.and_(later, consumption.c.version <= newest)
        found.update(connection.scalars(sa.select(consumption.c.sample_id).where(later)))
    return found


def _set_queued(connection: Connection, sample_ids: Iterable[str], queued: int) -> None:
    for some in _some(sample_ids):
        connection.execute(
            sa.update(samples)
            .where(
                samples.c.sample_id.in_(some), samples.c.fate.is_(None), samples.c.queued != queued
            )
            .values(queued=queued)
        )


def _some(sample_ids: Iterable[str]) -> Iterator[list[str]]:
    """Yield as many at a time as a statement takes, in the order of the table."""
    ordered = sorted(sample_ids)
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]
