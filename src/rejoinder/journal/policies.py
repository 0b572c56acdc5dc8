"""The registry's tables: policies, their versions, which one is live."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection

from rejoinder.errors import JournalError
from rejoinder.journal import leasing
from rejoinder.journal.columns import decode_json, encode_json
from rejoinder.journal.lineages import (
    describe,
    ensure_lineage,
    insert_lineage,
    open_lineage_row,
    queue_by_consumption,
)
from rejoinder.journal.records import Lineage, PolicyVersion, RollbackCause, line_of
from rejoinder.journal.schema import lineages, policies, policy_versions, tenants
from rejoinder.types import BASE_VERSION, VersionState, WeightsKind

_AT_ONCE = 500


def ensure_policy(
    connection: Connection, policy: str, tenant: str, base_uri: str, fingerprint: str
) -> None:
    """Register a policy with its base as version 0.

    Registering it again changes nothing but the place of the base.

    Raises:
        JournalError: it is registered with another base or for another tenant.
    """
    row = connection.execute(sa.select(policies).where(policies.c.policy == policy)).first()
    if row is not None:
        if row.fingerprint != fingerprint:
            raise JournalError(
                f"policy {policy!r} was started from {row.base_uri} ({row.fingerprint}), and "
                f"{base_uri} ({fingerprint}) has other weights: give the new model another "
                "model.policy name, or another home"
            )
        if row.tenant != tenant:
            raise JournalError(
                f"policy {policy!r} belongs to tenant {row.tenant!r}: choose another model.policy"
            )
        if row.base_uri != base_uri:
            _move_base(connection, policy, row.base_uri, base_uri)
        return
    now = time.time()
    connection.execute(
        insert(tenants).values(tenant=tenant, created_at=now).on_conflict_do_nothing()
    )
    connection.execute(
        sa.insert(policies).values(
            policy=policy,
            tenant=tenant,
            base_uri=base_uri,
            fingerprint=fingerprint,
            created_at=now,
        )
    )
    base = PolicyVersion(
        policy=policy,
        version=BASE_VERSION,
        uri=base_uri,
        kind=WeightsKind.FULL,
        base_uri=base_uri,
        parent=None,
        lineage_id=None,
        step=None,
        state=VersionState.LIVE,
        created_at=now,
        pinned=True,
    )
    insert_version(connection, base, None, None)
    make_live(connection, policy, BASE_VERSION, VersionState.RETIRED)


def _move_base(connection: Connection, policy: str, old: str, new: str) -> None:
    """Follow the same weights to another place (a cache that was moved or made anew)."""
    connection.execute(sa.update(policies).where(policies.c.policy == policy).values(base_uri=new))
    its_versions = policy_versions.c.policy == policy
    for column in (policy_versions.c.base_uri, policy_versions.c.uri):
        connection.execute(
            sa.update(policy_versions).where(its_versions, column == old).values({column: new})
        )


def insert_version(
    connection: Connection, version: PolicyVersion, lineage_id: str | None, step: int | None
) -> None:
    """Insert a version as a candidate.

    Raises:
        JournalError: its number is taken; orphaned and rejected versions keep theirs.
    """
    which = _version(version.policy, version.version)
    if connection.execute(sa.select(policy_versions.c.version).where(which)).first() is not None:
        raise JournalError(
            f"version {version.version} of {version.policy!r} exists: take the lineage's "
            "next_version"
        )
    connection.execute(
        sa.insert(policy_versions).values(
            policy=version.policy,
            version=version.version,
            uri=version.uri,
            kind=version.kind,
            base_uri=version.base_uri,
            parent=version.parent,
            lineage_id=lineage_id,
            step=step,
            state=VersionState.CANDIDATE,
            created_at=version.created_at,
            checkpoint_uri=version.checkpoint_uri,
            pinned=int(version.pinned),
            files=int(version.files),
            metrics=encode_json(version.metrics),
        )
    )


def make_live(connection: Connection, policy: str, version: int, former: VersionState) -> None:
    """Make a version live; the one that was live becomes ``former``."""
    connection.execute(
        sa.update(policy_versions)
        .where(
            policy_versions.c.policy == policy,
            policy_versions.c.state == VersionState.LIVE,
            policy_versions.c.version != version,
        )
        .values(state=former)
    )
    connection.execute(
        sa.update(policy_versions)
        .where(_version(policy, version), policy_versions.c.state != VersionState.LIVE)
        .values(state=VersionState.LIVE, live_at=time.time())
    )


def read_versions(
    connection: Connection, policy: str | None, *, live: bool = False
) -> list[PolicyVersion]:
    """Read versions of one policy or all, oldest first."""
    query = sa.select(policy_versions).order_by(policy_versions.c.policy, policy_versions.c.version)
    if policy is not None:
        query = query.where(policy_versions.c.policy == policy)
    if live:
        query = query.where(policy_versions.c.state == VersionState.LIVE)
    return [_public(row) for row in connection.execute(query)]


def rollback(
    connection: Connection,
    policy: str,
    to_version: int,
    *,
    replay: bool,
    cause: RollbackCause | None = None,
) -> Lineage:
    """Serve an earlier version again and open a new lineage from it; see ``PolicyJournal``.

    Versions whose weights are no part of its own become ``rejected``, and those that it comes from
    are rejected no more, as where it was itself rolled back from.

    Raises:
        JournalError: there is no such version, it is orphaned, or its weights were deleted; or the
            lineage of the ``cause`` is open no more.
        LeaseLost: the trainer of the ``cause`` holds its lease no more.
    """
    if cause is not None:
        leasing.check(connection, cause.lease, cause.fence)
    target = connection.execute(
        sa.select(policy_versions).where(_version(policy, to_version))
    ).first()
    if target is None:
        raise JournalError(f"policy {policy!r} has no version {to_version}")
    if target.state == VersionState.ORPHANED or not target.files:
        raise JournalError(
            f"version {to_version} of {policy!r} cannot be served: it is orphaned, or retention "
            "has deleted its weights; choose one that `rejoinder policy list` shows with files"
        )
    old = ensure_lineage(connection, policy)
    if cause is not None and cause.lineage_id != old.lineage_id:
        raise JournalError(f"lineage {cause.lineage_id} of policy {policy!r} was closed meanwhile")
    connection.execute(
        sa.update(lineages)
        .where(lineages.c.lineage_id == old.lineage_id)
        .values(closed_at=time.time())
    )
    reason = None if cause is None else cause.reason
    insert_lineage(connection, policy, old.lineage_id, to_version, replay=replay, reason=reason)
    new = open_lineage_row(connection, policy)
    queue_by_consumption(connection, old.lineage_id, new.lineage_id)
    make_live(connection, policy, to_version, VersionState.REJECTED)
    _reject_others(connection, policy, to_version)
    return describe(connection, new)


def _reject_others(connection: Connection, policy: str, live: int) -> None:
    """Make versions that are no ancestors of the live one rejected, and no ancestor."""
    of_policy = policy_versions.c.policy == policy
    rows = connection.execute(
        sa.select(
            policy_versions.c.version, policy_versions.c.parent, policy_versions.c.state
        ).where(of_policy)
    ).all()
    ancestors = set(line_of({row.version: row.parent for row in rows}, live)[1:])
    served = (VersionState.RETIRED, VersionState.CANDIDATE)
    others = [one.version for one in rows if one.version not in ancestors and one.state in served]
    again = [
        one.version
        for one in rows
        if one.version in ancestors and one.state == VersionState.REJECTED
    ]
    for numbers, state in ((others, VersionState.REJECTED), (again, VersionState.RETIRED)):
        for start in range(0, len(numbers), _AT_ONCE):
            some = policy_versions.c.version.in_(numbers[start : start + _AT_ONCE])
            connection.execute(
                sa.update(policy_versions).where(of_policy, some).values(state=state)
            )


def forget_files(connection: Connection, policy: str, version: int) -> None:
    """Record that a version's weights are gone, for all versions that share them.

    Raises:
        JournalError: one of them is live, or there is no version of that number.
    """
    uri = connection.execute(
        sa.select(policy_versions.c.uri).where(_version(policy, version))
    ).scalar()
    alike = sa.and_(policy_versions.c.policy == policy, policy_versions.c.uri == uri)
    states = connection.scalars(sa.select(policy_versions.c.state).where(alike)).all()
    if not states or VersionState.LIVE in states:
        raise JournalError(
            f"the weights of version {version} of {policy!r} are live, or it does not exist"
        )
    connection.execute(sa.update(policy_versions).where(alike).values(files=0, checkpoint_uri=None))


def record_checkpoint(
    connection: Connection, lease: str, fence: int, policy: str, version: int, uri: str
) -> None:
    """Record that a version's optimizer state is on disk: training can go on from there.

    Raises:
        LeaseLost: the fence is not the lease's.
    """
    leasing.check(connection, lease, fence)
    connection.execute(
        sa.update(policy_versions).where(_version(policy, version)).values(checkpoint_uri=uri)
    )


def forget_checkpoint(connection: Connection, policy: str, version: int) -> None:
    """Record that a version's optimizer state is gone; its weights may still be served."""
    connection.execute(
        sa.update(policy_versions).where(_version(policy, version)).values(checkpoint_uri=None)
    )


def _version(policy: str, version: int) -> sa.ColumnElement[bool]:
    return sa.and_(policy_versions.c.policy == policy, policy_versions.c.version == version)


def _public(row: Any) -> PolicyVersion:
    return PolicyVersion(
        policy=row.policy,
        version=row.version,
        uri=row.uri,
        kind=WeightsKind(row.kind),
        base_uri=row.base_uri,
        parent=row.parent,
        lineage_id=row.lineage_id,
        step=row.step,
        state=VersionState(row.state),
        created_at=row.created_at,
        checkpoint_uri=row.checkpoint_uri,
        pinned=bool(row.pinned),
        files=bool(row.files),
        metrics=decode_json(row.metrics),
    )
