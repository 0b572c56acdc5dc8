"""Responses that clients may ask for again, or go on from, by their id.

A response is a turn whose client asked that it be kept. Its conversation is the turn's own; only
the object that the client was sent is stored beside it, without what many have in common. It
lives as long as its turn.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.journal.payloads import content_of, read_conversation, read_messages
from rejoinder.journal.pieces import put_together
from rejoinder.journal.records import EarlierResponse
from rejoinder.journal.schema import answers, responses, sessions, turns
from rejoinder.types import Scope


def read_response(connection: Connection, scope: Scope, response_id: str) -> bytes | None:
    """Return the object of a kept response of the scope's tenant and key."""
    found = connection.execute(
        sa.select(responses.c.body, responses.c.parts).where(
            responses.c.turn_id.in_(_owned(scope, response_id))
        )
    ).first()
    return found and put_together(found.body, found.parts, content_of(connection))


def read_earlier(connection: Connection, scope: Scope, response_id: str) -> EarlierResponse | None:
    """Return the conversation that a kept response ends; see ``TurnJournal.read_earlier``."""
    found = connection.execute(
        sa.select(responses.c.turn_id, responses.c.own_messages, answers.c.message)
        .join(answers, answers.c.turn_id == responses.c.turn_id)
        .where(responses.c.turn_id.in_(_owned(scope, response_id)))
    ).first()
    if found is None:
        return None
    said = read_conversation(connection, found.turn_id)[found.own_messages :]
    return EarlierResponse(found.turn_id, said + read_messages(connection, found.message))


def delete_response(connection: Connection, scope: Scope, response_id: str) -> bool:
    """Forget a response; its turn stays. Returns whether there was one."""
    gone = connection.execute(
        sa.delete(responses).where(responses.c.turn_id.in_(_owned(scope, response_id)))
    )
    return bool(gone.rowcount)


def _owned(scope: Scope, response_id: str) -> sa.Select[tuple[str]]:
    return (
        sa.select(turns.c.turn_id)
        .join(sessions, sessions.c.session_id == turns.c.session_id)
        .where(
            turns.c.completion_id == response_id,
            turns.c.tenant == scope.tenant,
            sessions.c.key_name == scope.key,
        )
    )
