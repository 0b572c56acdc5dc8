"""Conversations, verdicts and steps as JSON lines; memory stays bounded, exports can go on later.

A turn's line: ``type`` "turn", ``turn``, ``completion`` and ``choice`` (what feedback names),
``session``, ``tenant``, ``policy``, ``parent``, ``turn_type``, ``state``, ``fate``,
``superseded_by``, ``created_at``, ``answered_at``,
``link_reason``, ``finish_reason``, ``sampling``, ``versions`` [[version, count]],
``prompt_tokens``, ``answer_tokens``, ``messages``, ``answer`` (None if it broke off),
``next_states`` [{child, kind, outcome, no_hint, messages}] (of the kind ``feedback``: words beside
a score; ``no_hint``: why it gave no hint, where a hint judge read it),
``verdicts`` [{source, kind, score, why, votes, fingerprint, created_at}],
``feedback`` [{score, text, outcome, created_at}], ``sample`` {sample, reward, source, fate,
hints [text], hinted_by [{fingerprint, kind, model, prompt}] with one for each hint (None in it for
hints of before it was kept), consumed_by [{version, untrained}]} or None; ``untrained`` is why a
step that used it up changed no weights by it, None where it did.

A step's line: ``type`` "step", ``policy``, ``step``, ``version``, ``samples``, ``untrained``
{reason: samples that changed no weights}, ``mean_score``, ``metrics``, ``started_at``,
``finished_at``, ``orphaned``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Any

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.journal.columns import decode_json, decode_sampling, decode_versions, decode_votes
from rejoinder.journal.payloads import read_conversation, read_messages
from rejoinder.journal.samples import maker_of, use_of
from rejoinder.journal.schema import (
    answers,
    consumption,
    feedback,
    hints,
    next_states,
    prompts,
    samples,
    steps,
    turns,
    verdicts,
)
from rejoinder.types import Json

PAGE = 100
"""Turns read at once."""


def write_records(
    connection: Connection,
    file: IO[bytes],
    since: str | None,
    *,
    policy: str | None,
    tenant: str | None,
) -> Json:
    """Write the turns after ``since``, then the steps since; see ``SqlJournal.export_records``."""
    report: Json = {"turns": 0, "steps": 0, "last": since}
    for turn in export_turns(connection, since, policy, tenant):
        file.write(_line(turn))
        report["turns"] += 1
        report["last"] = turn["turn"]
    for step in export_steps(connection, since, policy):
        file.write(_line(step))
        report["steps"] += 1
    return report


def export_turns(
    connection: Connection, since: str | None, policy: str | None, tenant: str | None
) -> Iterator[Json]:
    """Yield a record per turn in the order of their ids, those after ``since`` only."""
    query = (
        sa.select(turns, prompts.c.sampling, prompts.c.link_reason, answers.c.message,
                  answers.c.versions, answers.c.finish_reason)
        .join(prompts, prompts.c.turn_id == turns.c.turn_id)
        .outerjoin(answers, answers.c.turn_id == turns.c.turn_id)
        .order_by(turns.c.turn_id)
        .limit(PAGE)
    )  # fmt: skip
    if policy is not None:
        query = query.where(turns.c.policy == policy)
    if tenant is not None:
        query = query.where(turns.c.tenant == tenant)
    last = since or ""
    while True:
        # A page is its own read: a long export must not keep the log from starting anew.
        page = connection.execute(query.where(turns.c.turn_id > last)).all()
        related = _Related(connection, [row.turn_id for row in page])
        for row in page:
            yield _turn(connection, row, related)
        if len(page) < PAGE:
            return
        last = page[-1].turn_id


def export_steps(connection: Connection, since: str | None, policy: str | None) -> Iterator[Json]:
    """Yield a record per training step finished after the turn ``since`` was opened."""
    query = sa.select(steps).order_by(steps.c.policy, steps.c.version)
    if since is not None:
        query = query.where(steps.c.finished_at > _time_of(since))
    if policy is not None:
        query = query.where(steps.c.policy == policy)
    for row in connection.execute(query).all():
        yield {
            "type": "step",
            "policy": row.policy,
            "step": row.step,
            "version": row.version,
            "samples": row.samples,
            "untrained": {} if row.untrained is None else decode_json(row.untrained),
            "mean_score": row.mean_score,
            "metrics": decode_json(row.metrics),
            "started_at": row.started_at,
            "finished_at": row.finished_at,
            "orphaned": row.orphaned_at is not None,
        }


def _line(record: Json) -> bytes:
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


def _time_of(turn_id: str) -> float:
    """Return when an id was made (its first twelve digits are milliseconds)."""
    return int(turn_id[:12], 16) / 1000


class _Related:
    """The rows of other tables that belong to a page of turns, by turn."""

    def __init__(self, connection: Connection, turn_ids: list[str]) -> None:
        self._connection = connection
        self._turn_ids = turn_ids
        self.next_states = self._read(next_states, next_states.c.created_at)
        self.verdicts = self._read(verdicts, verdicts.c.created_at)
        self.feedback = self._read(feedback, feedback.c.created_at)
        self.samples = self._read(samples, samples.c.created_at)
        self.hints = self._read(hints, hints.c.position)
        self.consumption = self._consumption()

    def _read(self, table: sa.Table, order: sa.Column[Any]) -> dict[str, list[Any]]:
        query = sa.select(table).where(table.c.turn_id.in_(self._turn_ids)).order_by(order)
        return _by_first(self._connection.execute(query), "turn_id")

    def _consumption(self) -> dict[str, list[Any]]:
        sample_ids = [row.sample_id for rows in self.samples.values() for row in rows]
        query = (
            sa.select(consumption)
            .where(consumption.c.sample_id.in_(sample_ids))
            .order_by(consumption.c.version)
        )
        return _by_first(self._connection.execute(query), "sample_id")


def _by_first(rows: Iterable[Any], key: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(getattr(row, key), []).append(row)
    return found


def _turn(connection: Connection, row: Any, related: _Related) -> Json:
    answer = None if row.message is None else read_messages(connection, row.message)[0]
    runs = () if row.versions is None else decode_versions(row.versions)
    return {
        "type": "turn",
        "turn": row.turn_id,
        "completion": row.completion_id,
        "choice": row.choice,
        "session": row.session_id,
        "tenant": row.tenant,
        "policy": row.policy,
        "parent": row.parent_id,
        "turn_type": row.turn_type,
        "state": row.state,
        "fate": row.fate,
        "superseded_by": row.superseded_by,
        "created_at": row.created_at,
        "answered_at": row.answered_at,
        "link_reason": row.link_reason,
        "finish_reason": row.finish_reason,
        "sampling": decode_sampling(row.sampling),
        "versions": [(run.version, run.count) for run in runs],
        "prompt_tokens": row.prompt_tokens,
        "answer_tokens": row.answer_tokens,
        "messages": read_conversation(connection, row.turn_id),
        "answer": answer,
        "next_states": [
            {
                "child": one.child_id,
                "kind": one.kind,
                "outcome": one.outcome,
                "no_hint": one.no_hint,
                "messages": read_messages(connection, one.messages),
            }
            for one in related.next_states.get(row.turn_id, ())
        ],
        "verdicts": [_verdict(one) for one in related.verdicts.get(row.turn_id, ())],
        "feedback": [
            {
                "score": one.score,
                "text": one.text,
                "outcome": one.outcome,
                "created_at": one.created_at,
            }
            for one in related.feedback.get(row.turn_id, ())
        ],
        "sample": _sample(related, row.turn_id),
    }


def _verdict(row: Any) -> Json:
    return {
        "source": row.source,
        "kind": row.kind,
        "score": row.score,
        "why": row.why,
        "votes": decode_votes(row.votes),
        "fingerprint": row.fingerprint,
        "created_at": row.created_at,
    }


def _sample(related: _Related, turn_id: str) -> Json | None:
    rows = related.samples.get(turn_id)
    if not rows:
        return None
    (row,) = rows
    drawn = related.hints.get(turn_id, ())
    return {
        "sample": row.sample_id,
        "reward": row.reward,
        "source": row.source,
        "fate": row.fate,
        "hints": [hint.text for hint in drawn],
        "hinted_by": [maker_of(hint) for hint in drawn],
        "consumed_by": [use_of(used) for used in related.consumption.get(row.sample_id, ())],
    }
