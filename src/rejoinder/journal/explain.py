"""Why a turn was linked as it is, and what became of it: what ``rejoinder explain turn`` shows.

An entry: ``turn``, ``completion``, ``choice``, ``session``, ``external_session`` (what its client
called it), ``policy``, ``turn_type``, ``created_at``, ``state``, ``fate``, ``parent``,
``superseded_by``, ``question`` {role, text} (the last message of its request, or None), ``answer``
{text, calls [name]} (None where there is none), ``served_only_for`` (what of its sampling keeps it
from training by default, a setting or that it was held to a form; or None), ``trace``
(hexadecimal), ``reason`` (one sentence), ``link`` (None for turns of before it was kept),
``replies`` [{child, kind, messages, outcome, no_hint, created_at}] (``no_hint``: why it gave no
hint, where a hint judge read it), ``branches`` (further requests that continue its answer, without
a next state of their own), ``verdicts`` [{kind, source, score, why}], ``hints`` [{text, hinted_by
{fingerprint, kind, model, prompt}}], ``sample`` {reward, source, fate, waits, consumed_by
[{version, untrained}]} or None; ``waits``: whether it is to train yet; ``untrained`` is why a step
that used it up changed no weights by it, None where it did.

``link`` has ``repeat``, ``parent`` and ``session`` {rule, why, turns}, ``next_state``
{messages, left_out} of a turn with a parent, ``prompt`` {rule, why, turns, ids} of one whose
history has answers (with which turn's ids it begins, and with how many of them), ``named_by`` and
``type_by``: where session and type come from; and ``begun`` where its client asked for a call: how
many ids at the end of its prompt begin it.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.journal.columns import decode_json, decode_sampling, valid_text
from rejoinder.journal.lineages import consumed_now
from rejoinder.journal.payloads import read_conversation, read_messages
from rejoinder.journal.samples import maker_of, use_of
from rejoinder.journal.schema import (
    answers,
    consumption,
    hints,
    next_states,
    prompts,
    samples,
    sessions,
    turns,
    verdicts,
)
from rejoinder.types import Json

_MADE_AT = re.compile("([a-z]+[-_])?[0-9a-f]{12}")
"""What an id has of the time when it was made: the same in all of one millisecond."""


def explain_turn(connection: Connection, any_id: str) -> list[Json]:
    """Return an entry per turn of this id; see ``WatchJournal``."""
    any_id = valid_text(any_id)  # bytes of a command line that are no text
    query = (
        sa.select(
            turns,
            sessions.c.external,
            prompts.c.link_reason,
            prompts.c.link,
            prompts.c.sampling,
            answers.c.error,
            answers.c.message,
        )
        .join(sessions, sessions.c.session_id == turns.c.session_id)
        .join(prompts, prompts.c.turn_id == turns.c.turn_id)
        .outerjoin(answers, answers.c.turn_id == turns.c.turn_id)
        .where(sa.or_(turns.c.turn_id == any_id, turns.c.completion_id == any_id))
        .order_by(turns.c.choice)
    )
    return [_entry(connection, row) for row in connection.execute(query).all()]


def similar_ids(connection: Connection, text: str, limit: int) -> list[str]:
    """Return ids that begin with a text, or else like it; see ``WatchJournal``."""
    text = valid_text(text)
    found = _beginning_with(connection, text, limit)
    if not found and (same_time := _MADE_AT.match(text)) is not None:
        found = _beginning_with(connection, same_time[0], limit)
    return found


def _beginning_with(connection: Connection, text: str, limit: int) -> list[str]:
    """Look in the indexes of both kinds of ids; an empty text is no beginning."""
    found: list[str] = []
    for column in (turns.c.turn_id, turns.c.completion_id):
        query = (
            sa.select(column)
            .where(column > text, column < text + chr(sys.maxunicode))
            .distinct()
            .order_by(column)
            .limit(limit - len(found))
        )
        found.extend(connection.scalars(query) if text else ())
    return found


def _entry(connection: Connection, row: Any) -> Json:
    replies = _replies(connection, row.turn_id)
    return {
        "turn": row.turn_id,
        "completion": row.completion_id,
        "choice": row.choice,
        "session": row.session_id,
        "external_session": row.external,
        "policy": row.policy,
        "turn_type": row.turn_type,
        "created_at": row.created_at,
        "state": row.state,
        "fate": row.fate,
        "question": _question(connection, row.turn_id),
        "answer": None if row.message is None else _answer(connection, row.message),
        "served_only_for": decode_sampling(row.sampling).not_trainable_because(),
        "error": row.error,
        "parent": row.parent_id,
        "superseded_by": row.superseded_by,
        "trace": None if row.trace is None else row.trace.hex(),
        "reason": row.link_reason,
        "link": None if row.link is None else decode_json(row.link),
        "replies": replies,
        "branches": _branches(connection, row, {reply["child"] for reply in replies}),
        "verdicts": _verdicts(connection, row.turn_id),
        "hints": _hints(connection, row.turn_id),
        "sample": _sample(connection, row.turn_id),
    }


def _question(connection: Connection, turn_id: str) -> Json | None:
    asked = read_conversation(connection, turn_id)
    return {"role": asked[-1].role, "text": asked[-1].content} if asked else None


def _answer(connection: Connection, stored: bytes) -> Json:
    (answer,) = read_messages(connection, stored)
    return {"text": answer.content, "calls": [call.name for call in answer.tool_calls]}


def _replies(connection: Connection, turn_id: str) -> list[Json]:
    query = (
        sa.select(next_states)
        .where(next_states.c.turn_id == turn_id)
        .order_by(next_states.c.created_at)
    )
    return [
        {
            "child": one.child_id,
            "kind": one.kind,
            "messages": len(read_messages(connection, one.messages)),
            "outcome": one.outcome,
            "no_hint": one.no_hint,
            "created_at": one.created_at,
        }
        for one in connection.execute(query)
    ]


def _branches(connection: Connection, row: Any, known: set[str]) -> list[str]:
    """Return children of the same session that brought no next state: side turns, equal replies."""
    query = (
        sa.select(turns.c.turn_id)
        .where(turns.c.session_id == row.session_id, turns.c.parent_id == row.turn_id)
        .order_by(turns.c.turn_id)
    )
    return [child for child in connection.scalars(query) if child not in known]


def _verdicts(connection: Connection, turn_id: str) -> list[Json]:
    query = (
        sa.select(verdicts.c.kind, verdicts.c.source, verdicts.c.score, verdicts.c.why)
        .where(verdicts.c.turn_id == turn_id)
        .order_by(verdicts.c.created_at)
    )
    return [dict(one) for one in connection.execute(query).mappings()]


def _hints(connection: Connection, turn_id: str) -> list[Json]:
    query = sa.select(hints).where(hints.c.turn_id == turn_id).order_by(hints.c.position)
    return [{"text": one.text, "hinted_by": maker_of(one)} for one in connection.execute(query)]


def _sample(connection: Connection, turn_id: str) -> Json | None:
    row = connection.execute(sa.select(samples).where(samples.c.turn_id == turn_id)).first()
    if row is None:
        return None
    used = (
        sa.select(consumption)
        .where(consumption.c.sample_id == row.sample_id)
        .order_by(consumption.c.version)
    )
    return {
        "reward": row.reward,
        "source": row.source,
        "fate": row.fate,
        "waits": row.queued == 1 and not consumed_now(connection, row.policy, row.sample_id),
        "consumed_by": [use_of(one) for one in connection.execute(used)],
    }
