"""The gateway's rarer writes, and its reads for linking."""

from __future__ import annotations

import time
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.errors import UnknownTurn
from rejoinder.journal import statements as sql
from rejoinder.journal.capture import settle_next_states
from rejoinder.journal.columns import (
    encode_ids,
    encode_logprobs,
    encode_versions,
    scope_digest,
)
from rejoinder.journal.feedback import PROVISIONAL, cancel_judging
from rejoinder.journal.lineages import consumed_now
from rejoinder.journal.payloads import read_messages
from rejoinder.journal.records import AbortedTurn
from rejoinder.journal.samples import cancel_sample
from rejoinder.journal.schema import answers, samples, sessions, turns
from rejoinder.types import ChainMatch, Fate, Message, SameRequest, Scope, TurnState

MOST_MATCHES = 8
"""Newest matches of each turn type returned per hash: two are ambiguous already, and openings
repeat endlessly."""
MOST_CHAINS = 256
"""Newest answers of a history that are looked up; only the last one can be the parent."""
MOST_REPEATS = 64
"""Newest turns of the same request returned: all the answers that one request can have."""
CLOSE_AT_ONCE = 100
"""Idle sessions closed in one transaction."""


def find_chains(
    connection: Connection, scope: Scope, chains: Sequence[bytes], external_session: str | None
) -> list[ChainMatch]:
    """Look up answer chains of the scope; of each, main turns first, newest first."""
    values: dict[str, object] = {
        "scope": scope_digest(scope.tenant, scope.key, scope.user),
        "most": MOST_MATCHES,
    }
    statement = sql.FIND_CHAIN
    if external_session is not None:
        statement, values["external"] = sql.FIND_CHAIN_IN_SESSION, external_session
    return [
        ChainMatch(turn_id, session_id, external, found, bool(superseded), trace, bool(side))
        for chain in dict.fromkeys(chains[-MOST_CHAINS:])
        for turn_id, session_id, external, found, superseded, trace, side in statement.fetch(
            connection, chain=chain, **values
        )
    ]


def find_same_request(
    connection: Connection, scope: Scope, request_chain: bytes, external_session: str | None
) -> list[SameRequest]:
    """Look up turns with the same history, newest first."""
    scope_id = scope_digest(scope.tenant, scope.key, scope.user)
    if external_session is None:
        rows = sql.FIND_REQUEST.fetch(
            connection, scope=scope_id, chain=request_chain, most=MOST_REPEATS
        )
    else:
        rows = sql.FIND_REQUEST_IN_SESSION.fetch(
            connection,
            scope=scope_id,
            external=external_session,
            chain=request_chain,
            most=MOST_REPEATS,
        )
    return [
        SameRequest(turn_id, session_id, parent_id, created_at, bool(is_open), trace)
        for turn_id, session_id, parent_id, created_at, is_open, trace in rows
    ]


def read_answers(connection: Connection, turn_ids: Sequence[str]) -> dict[str, Message]:
    """Return the answers of turns that have one."""
    rows = connection.execute(
        sa.select(answers.c.turn_id, answers.c.message).where(
            answers.c.turn_id.in_(turn_ids), answers.c.message.is_not(None)
        )
    )
    return {turn_id: read_messages(connection, message)[0] for turn_id, message in rows.all()}


def find_session(connection: Connection, scope: Scope, name: str) -> str | None:
    """Look up the session a client names."""
    scope_id = scope_digest(scope.tenant, scope.key, scope.user)
    rows = sql.FIND_SESSION.fetch(connection, scope=scope_id, name=name)
    return rows[0][0] if rows else None


def abort_turn(connection: Connection, turn: AbortedTurn) -> None:
    """End an open turn and keep what was sampled; a turn that has ended already stays as it is.

    Raises:
        UnknownTurn: the turn is not known.
    """
    numbers = [run.version for run in turn.versions]
    changed = connection.execute(
        sa.update(turns)
        .where(turns.c.turn_id == turn.turn_id, turns.c.state == TurnState.OPEN)
        .values(
            state=TurnState.ABORTED,
            fate=turn.fate,
            answered_at=time.time(),
            answer_tokens=len(turn.answer_ids),
            oldest_version=min(numbers, default=None),
            newest_version=max(numbers, default=None),
        )
    )
    if not changed.rowcount:
        _must_exist(connection, turn.turn_id)
        return
    connection.execute(
        sa.insert(answers).values(
            turn_id=turn.turn_id,
            answer_ids=encode_ids(turn.answer_ids),
            logprobs=encode_logprobs(turn.logprobs),
            versions=encode_versions(turn.versions),
            error=turn.error,
        )
    )
    settle_next_states(connection)


def abort_open_turns(connection: Connection, owner_prefix: str, alive: Sequence[str]) -> int:
    """Abort what processes of this prefix left open when they died."""
    changed = connection.execute(
        sa.update(turns)
        .where(
            turns.c.state == sa.literal_column("'open'"),
            turns.c.owner.startswith(owner_prefix, autoescape=True),
            turns.c.owner.not_in(list(alive)),
        )
        .values(state=TurnState.ABORTED, fate=Fate.PROCESS_KILLED, answered_at=time.time())
    )
    settle_next_states(connection)
    return changed.rowcount


def supersede(connection: Connection, turn_id: str, by: str) -> None:
    """Mark a turn as replaced; unless its sample was consumed, it will not train.

    Raises:
        UnknownTurn: the turn is not known.
    """
    turn = connection.execute(sa.select(turns).where(turns.c.turn_id == turn_id)).first()
    if turn is None:
        raise UnknownTurn(f"turn {turn_id} is not in the journal")
    connection.execute(sa.update(turns).where(turns.c.turn_id == turn_id).values(superseded_by=by))
    cancel_judging(connection, turn_id, Fate.SUPERSEDED.value)
    sample_id = connection.execute(
        sa.select(samples.c.sample_id).where(samples.c.turn_id == turn_id)
    ).scalar()
    if sample_id is not None and consumed_now(connection, turn.policy, sample_id):
        return
    cancel_sample(connection, turn_id, Fate.SUPERSEDED)
    final = turn.state == TurnState.ENDED and turn.fate not in PROVISIONAL
    if turn.state not in (TurnState.OPEN, TurnState.ABORTED) and not final:
        connection.execute(
            sa.update(turns)
            .where(turns.c.turn_id == turn_id)
            .values(state=TurnState.ENDED, fate=Fate.SUPERSEDED)
        )


def mark_ambiguous(connection: Connection, turn_ids: Sequence[str]) -> None:
    """End waiting turns provisionally: a reply fits several of them."""
    _end_waiting(connection, turns.c.turn_id.in_(list(turn_ids)), Fate.AMBIGUOUS_PARENT)


def close_session(connection: Connection, session_id: str, reason: str) -> None:
    """Close a session; closing one that is closed or unknown is no error.

    A session with an open turn stays open until it is idle, so that the turn's answer is not left
    waiting in a closed session.
    """
    connection.execute(
        sa.update(sessions)
        .where(
            sessions.c.session_id == session_id,
            sessions.c.closed_at.is_(None),
            ~_has_open_turn(),
        )
        .values(closed_at=time.time(), close_reason=reason)
    )
    _end_waiting(connection, turns.c.session_id == session_id, Fate.NO_NEXT_STATE)


def close_idle(connection: Connection, idle_s: float) -> int:
    """Close up to ``CLOSE_AT_ONCE`` idle sessions; returns how many were closed."""
    now = time.time()
    idle = connection.scalars(
        sa.select(sessions.c.session_id)
        .where(sessions.c.closed_at.is_(None), sessions.c.last_at < now - idle_s, ~_has_open_turn())
        .order_by(sessions.c.last_at)
        .limit(CLOSE_AT_ONCE)
    ).all()
    connection.execute(
        sa.update(sessions)
        .where(sessions.c.session_id.in_(idle))
        .values(closed_at=now, close_reason="idle")
    )
    _end_waiting(connection, turns.c.session_id.in_(idle), Fate.NO_NEXT_STATE)
    return len(idle)


def _has_open_turn() -> sa.Exists:
    return sa.exists().where(
        turns.c.session_id == sessions.c.session_id, turns.c.state == TurnState.OPEN
    )


def _end_waiting(connection: Connection, which: sa.ColumnElement[bool], fate: Fate) -> None:
    connection.execute(
        sa.update(turns)
        .where(which, turns.c.state == TurnState.WAITING)
        .values(state=TurnState.ENDED, fate=fate)
    )


def _must_exist(connection: Connection, turn_id: str) -> None:
    if not connection.execute(sa.select(turns.c.turn_id).where(turns.c.turn_id == turn_id)).first():
        raise UnknownTurn(f"turn {turn_id} is not in the journal")
