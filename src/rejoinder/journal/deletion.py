"""Deleting single conversations because a person asks for it: whole sessions, whatever they are at.

Unlike retention this waits for nothing. What a session may still teach goes with it, counted; what
it has taught already stays in the weights, and the report says in which versions.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection

from rejoinder.errors import JournalError
from rejoinder.journal import statements as sql
from rejoinder.journal.columns import valid_text
from rejoinder.journal.lineages import consumed_now
from rejoinder.journal.records import line_of
from rejoinder.journal.retention import delete_whole
from rejoinder.journal.samples import cancel_sample
from rejoinder.journal.schema import (
    consumption,
    deletions,
    hints,
    judge_jobs,
    next_states,
    policy_versions,
    samples,
    sessions,
    turns,
    verdicts,
)
from rejoinder.types import Fate, Json, TurnState, VersionState

_AT_ONCE = 500
_AFTER_A_REPLY = (
    TurnState.JUDGING,
    TurnState.JUDGED,
    TurnState.NO_VERDICT,
    TurnState.SAMPLED,
)
_REMEMBER_S = 86_400.0
"""A request that was accepted before a deletion is written long before this has passed."""


@dataclass(slots=True)
class Tally:
    """What goes with some sessions."""

    counts: Counter[str] = field(default_factory=Counter)
    """``sessions``, ``turns``, ``answering`` (turns that are being answered), ``judgings`` (replies
    that wait for the judge or are being read), ``waiting`` and ``trained`` samples."""
    learnt: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Of each policy the versions whose step changed weights by a sample."""

    def add(self, other: Tally) -> None:
        """Add what goes with other sessions."""
        self.counts += other.counts
        for policy, versions in other.learnt.items():
            self.learnt[policy] |= versions

    def report(self, connection: Connection) -> Json:
        """Return the figures, and in which versions what was learnt still is."""
        names = ("sessions", "turns", "answering", "judgings", "waiting", "trained")
        learnt = [_learnt(connection, *one) for one in sorted(self.learnt.items())]
        return {**{name: self.counts[name] for name in names}, "learnt": learnt}


def find_sessions(
    connection: Connection,
    names: Sequence[str],
    tenant: str | None,
    key: str | None,
    user: str | None,
) -> list[str]:
    """Return the ids of the sessions that are named, or of all within tenant, key and user.

    A name is a session's id, or what its client called it.

    Raises:
        JournalError: a name is not known there, or several people's clients use it.
    """
    theirs = within(tenant, key, user)
    if not names:
        query = sa.select(sessions.c.session_id).where(*theirs).order_by(sessions.c.session_id)
        return list(connection.scalars(query))
    found: dict[str, None] = {}
    for name in names:
        found |= dict.fromkeys(_named(connection, valid_text(name), theirs))
    return list(found)


def within(tenant: str | None, key: str | None, user: str | None) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for sessions of a tenant, key and user; None of one: any."""
    return [
        column == valid_text(wanted)
        for column, wanted in (
            (sessions.c.tenant, tenant),
            (sessions.c.key_name, key),
            (sessions.c.user_name, user),
        )
        if wanted is not None
    ]


def _named(
    connection: Connection, name: str, theirs: Sequence[sa.ColumnElement[bool]]
) -> list[str]:
    rows = connection.execute(
        sa.select(sessions.c.session_id, sessions.c.scope).where(
            sa.or_(sessions.c.session_id == name, sessions.c.external == name), *theirs
        )
    ).all()
    exact = [row.session_id for row in rows if row.session_id == name]
    if exact:
        return exact
    if not rows:
        raise JournalError(
            f"there is no session {name!r}; nothing was deleted. `rejoinder records list` shows "
            "which there are, by the id that clients get as X-Rejoinder-Session-Id, and the name "
            "that they may have for it"
        )
    if len({row.scope for row in rows}) > 1:
        raise JournalError(
            f"several people's clients call a session {name!r}; nothing was deleted. Narrow it by "
            "--tenant, --key or --user, or name its id"
        )
    return [row.session_id for row in rows]


def tally(connection: Connection, session_ids: Sequence[str]) -> Tally:
    """Count what would go with sessions."""
    total = Tally()
    for some in in_parts(session_ids, _AT_ONCE):
        total.add(_tally(connection, some))
    return total


def in_parts(session_ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield ``size`` of them at a time."""
    for start in range(0, len(session_ids), size):
        yield session_ids[start : start + size]


def _tally(connection: Connection, session_ids: Sequence[str]) -> Tally:
    mine = turns.c.session_id.in_(session_ids)

    def count(source: sa.FromClause, *where: sa.ColumnElement[bool]) -> int:
        query = sa.select(sa.func.count()).select_from(source).where(*where)
        return int(connection.execute(query).scalar_one())

    of_turns = samples.join(turns, turns.c.turn_id == samples.c.turn_id)
    learnt: defaultdict[str, set[int]] = defaultdict(set)
    trained: set[str] = set()
    for sample_id, policy, version in connection.execute(
        sa.select(samples.c.sample_id, samples.c.policy, consumption.c.version)
        .select_from(of_turns)
        .join(consumption, consumption.c.sample_id == samples.c.sample_id)
        .join(
            policy_versions,
            sa.and_(
                policy_versions.c.policy == samples.c.policy,
                policy_versions.c.version == consumption.c.version,
            ),
        )
        .where(
            mine,
            consumption.c.untrained.is_(None),
            policy_versions.c.state != VersionState.ORPHANED,
        )
    ):
        learnt[policy].add(version)
        trained.add(sample_id)
    counts = Counter(
        sessions=count(sessions, sessions.c.session_id.in_(session_ids)),
        turns=count(turns, mine),
        answering=count(turns, mine, turns.c.state == TurnState.OPEN),
        judgings=count(judge_jobs.join(turns, turns.c.turn_id == judge_jobs.c.turn_id), mine),
        waiting=count(of_turns, mine, samples.c.queued == 1),
        trained=len(trained),
    )
    return Tally(counts, learnt)


def delete_sessions(connection: Connection, session_ids: Sequence[str]) -> Tally:
    """Delete sessions with everything of theirs; those that are gone already are no error.

    What was still to train or to be judged is counted with its reason (rule 4).
    """
    found = _tally(connection, session_ids)
    known = connection.scalars(
        sa.select(sessions.c.session_id).where(sessions.c.session_id.in_(session_ids))
    ).all()
    _forget_replies(connection, known)
    delete_whole(connection, known)
    now = time.time()
    connection.execute(sa.delete(deletions).where(deletions.c.deleted_at < now - _REMEMBER_S))
    rows = [{"session_id": session_id, "deleted_at": now} for session_id in known]
    if rows:
        remembered = insert(deletions)
        connection.execute(
            remembered.on_conflict_do_update(
                index_elements=["session_id"], set_={"deleted_at": remembered.excluded.deleted_at}
            ),
            rows,
        )
    _count(connection, found.counts)
    return found


def _forget_replies(connection: Connection, session_ids: Sequence[str]) -> None:
    """Delete what turns of other sessions keep of replies that came in these, and its effects.

    One request with several prompts can reply to several sessions and is part of one.
    """
    child, parent = turns.alias(), turns.alias()
    replies = connection.execute(
        sa.select(next_states.c.turn_id, next_states.c.digest, parent.c.feedback, parent.c.policy)
        .join(child, child.c.turn_id == next_states.c.child_id)
        .join(parent, parent.c.turn_id == next_states.c.turn_id)
        .where(
            child.c.session_id.in_(session_ids),
            next_states.c.turn_id == child.c.parent_id,
            parent.c.session_id.not_in(session_ids),
        )
    ).all()
    for turn_id, digest, score, policy in replies:
        for table in (judge_jobs, verdicts, next_states):
            connection.execute(
                sa.delete(table).where(table.c.turn_id == turn_id, table.c.digest == digest)
            )
        connection.execute(sa.delete(hints).where(hints.c.turn_id == turn_id))
        sample_id = connection.execute(
            sa.select(samples.c.sample_id).where(samples.c.turn_id == turn_id)
        ).scalar()
        if score is not None or (sample_id and consumed_now(connection, policy, sample_id)):
            continue
        cancel_sample(connection, turn_id, Fate.DELETED)
        connection.execute(
            sa.update(turns)
            .where(turns.c.turn_id == turn_id, turns.c.state.in_(_AFTER_A_REPLY))
            .values(state=TurnState.ENDED, fate=Fate.DELETED, decisive=0)
        )


def _count(connection: Connection, counts: Mapping[str, int]) -> None:
    names = {"turns": "turns", "judgings": "judgings", "waiting": "samples"}
    rows = [
        {"role": "retention", "name": name, "reason": "asked", "amount": counts[what]}
        for what, name in names.items()
        if counts[what]
    ]
    if rows:
        sql.UPSERT_COUNTER.many(connection, rows)


def _learnt(connection: Connection, policy: str, versions: set[int]) -> Json:
    """Say where a policy has what some of its versions learnt.

    Returns ``policy``, ``versions`` that learnt it, the ``live`` version, whether that one
    ``holds`` it, and ``back_to``: the newest version before all that, if its weights are there.
    """
    rows = {
        row.version: row
        for row in connection.execute(
            sa.select(policy_versions).where(policy_versions.c.policy == policy)
        )
    }
    live = next((one.version for one in rows.values() if one.state == VersionState.LIVE), None)
    parents = {one.version: one.parent for one in rows.values()}
    line = [] if live is None else line_of(parents, live)
    held = versions & set(line)
    before = [one for one in line if held and one < min(held) and rows[one].files]
    return {
        "policy": policy,
        "versions": sorted(versions),
        "live": live,
        "holds": bool(held),
        "back_to": max(before, default=None),
    }
