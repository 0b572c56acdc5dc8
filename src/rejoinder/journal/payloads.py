"""Reading prompts and messages back: stored as what the parent does not have.

A chain of prompts is followed with a loop (its depth is bounded when written) and put together
from its oldest member.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.errors import JournalError
from rejoinder.journal.columns import ID_BYTES, Fetch, decode_ids, decode_messages
from rejoinder.journal.database import Query
from rejoinder.types import Message

_PROMPT = Query(
    sa.text("""
    SELECT p.base_id, p.shared_ids, p.suffix_ids, p.suffix_digest, p.system, p.shared_messages,
           p.messages, p.tools_digest, p.options_digest, a.answer_ids, a.message
    FROM prompts p LEFT JOIN answers a ON a.turn_id = p.turn_id
    WHERE p.turn_id = :turn_id
    """)
)
_CONTENT = Query(sa.text("SELECT data FROM contents WHERE digest = :digest"))


class _Row(NamedTuple):
    base_id: str | None
    shared_ids: int
    suffix_ids: bytes | None
    suffix_digest: bytes | None
    system: bytes | None
    shared_messages: int
    messages: bytes
    tools_digest: bytes | None
    options_digest: bytes | None
    answer_ids: bytes | None
    answer: bytes | None


@dataclass(frozen=True, slots=True)
class Request:
    """What the engine got and what it was made from."""

    prompt_ids: list[int]
    messages: tuple[Message, ...]
    tools: str | None
    options: str | None


def read_request(connection: Connection, turn_id: str) -> Request:
    """Return a turn's exact prompt ids, and what they were rendered from."""
    rows = _chain(connection, turn_id)
    last = rows[-1]
    system = () if last.system is None else decode_messages(last.system, content_of(connection))
    return Request(
        prompt_ids=decode_ids(_join_ids(connection, rows)),
        messages=system + _join_messages(connection, rows),
        tools=_text(connection, last.tools_digest),
        options=_text(connection, last.options_digest),
    )


def read_conversation(connection: Connection, turn_id: str) -> tuple[Message, ...]:
    """Return the messages of a turn's request, oldest first."""
    rows = _chain(connection, turn_id)
    system = rows[-1].system
    leading = () if system is None else decode_messages(system, content_of(connection))
    return leading + _join_messages(connection, rows)


def read_prompt_ids(connection: Connection, turn_id: str) -> list[int]:
    """Return a turn's exact prompt ids."""
    return decode_ids(_join_ids(connection, _chain(connection, turn_id)))


def read_turn_ids(connection: Connection, turn_id: str) -> tuple[list[int], list[int]] | None:
    """Return the prompt ids and the sampled ids of a turn; None without an answer or a turn."""
    if not _PROMPT.fetch(connection, turn_id=turn_id):
        return None
    rows = _chain(connection, turn_id)
    answer = rows[-1].answer_ids
    return None if answer is None else (decode_ids(_join_ids(connection, rows)), decode_ids(answer))


def read_messages(connection: Connection, data: bytes) -> tuple[Message, ...]:
    """Decode messages of a column, fetching long contents."""
    return decode_messages(data, content_of(connection))


def _chain(connection: Connection, turn_id: str) -> list[_Row]:
    """Return the prompt rows a turn is built from, its oldest base first, itself last."""
    rows: list[_Row] = []
    current: str | None = turn_id
    while current is not None:
        found = _PROMPT.fetch(connection, turn_id=current)
        if not found:
            raise JournalError(f"the prompt of turn {current} is not in the journal")
        rows.append(_Row(*found[0]))
        current = rows[-1].base_id
    rows.reverse()
    return rows


def _join_ids(connection: Connection, rows: list[_Row]) -> bytes:
    prompt = history = b""
    for row in rows:
        own = row.suffix_ids
        if own is None:
            assert row.suffix_digest is not None
            own = _content(connection, row.suffix_digest)
        prompt = history[: row.shared_ids * ID_BYTES] + own
        history = prompt + (row.answer_ids or b"")
    return prompt


def _join_messages(connection: Connection, rows: list[_Row]) -> tuple[Message, ...]:
    fetch = content_of(connection)
    messages: tuple[Message, ...] = ()
    history = messages
    for row in rows:
        messages = history[: row.shared_messages] + decode_messages(row.messages, fetch)
        history = messages if row.answer is None else messages + decode_messages(row.answer, fetch)
    return messages


def _text(connection: Connection, digest: bytes | None) -> str | None:
    return None if digest is None else _content(connection, digest).decode()


def _content(connection: Connection, digest: bytes) -> bytes:
    found = _CONTENT.fetch(connection, digest=digest)
    if not found:
        raise JournalError(f"content {digest.hex()} is not in the journal")
    return bytes(found[0][0])


def content_of(connection: Connection) -> Fetch:
    """Return what fetches contents by their digest."""
    return lambda digest: _content(connection, digest)
