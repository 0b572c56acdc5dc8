"""The frequent writes of serving, applied as a group: open, finish, next state, counters, reports.

Items of one group are applied by kind: sessions, turns, prompts, answers, next states. That gives
the same rows as one after the other, because a next state that comes before its turn's answer is
kept as ``early`` and settled at the end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.engine import Connection

from rejoinder.errors import JournalError
from rejoinder.journal import statements as sql
from rejoinder.journal.base import SampleRule
from rejoinder.journal.columns import (
    ID_BYTES,
    LARGE_BYTES,
    Store,
    all_finite,
    digest_of,
    encode_ids,
    encode_json,
    encode_logprobs,
    encode_messages,
    encode_sampling,
    encode_versions,
    scope_digest,
    valid_text,
)
from rejoinder.journal.feedback import apply_feedback
from rejoinder.journal.lost import LostOpenings
from rejoinder.journal.memory import Remembered, TurnMemory
from rejoinder.journal.pieces import cut
from rejoinder.journal.records import FinishedTurn, NextState, OpenTurn, RoleReport
from rejoinder.types import Fate, Message, TurnState, TurnType, new_id

Row = dict[str, Any]

HUGE_BYTES = 65_536
"""Contents from this size on are written one by one."""
GONE_S = 86_400.0
"""A process that has not reported for a day is forgotten: each start brings a new one."""
CLOCK_S = 60.0
"""A deletion that is to come by more than this was made before the clock was set back: it says
nothing of what is accepted now."""


@dataclass(frozen=True, slots=True)
class Count:
    """An amount to add to a counter."""

    role: str
    name: str
    reason: str
    amount: int


class TurnGroup:
    """The items of one group as rows by statement."""

    def __init__(self, memory: TurnMemory, lost: LostOpenings, rule: SampleRule) -> None:
        """``rule`` says what scores make that came before their answer was whole."""
        self._memory = memory
        self._lost = lost
        self._rule = rule
        self._tenants: dict[str, Row] = {}
        self._sessions: dict[str, Row] = {}
        self._contents: dict[bytes, Row] = {}
        self._huge: dict[bytes, Row] = {}
        self._refs: dict[tuple[str, bytes], Row] = {}
        self._turns: dict[str, Row] = {}
        self._prompts: list[Row] = []
        self._answers: list[Row] = []
        self._responses: list[Row] = []
        self._finished: list[Row] = []
        self._next_states: list[Row] = []
        self._counts: dict[tuple[str, str, str], Row] = {}
        self._reports: dict[tuple[str, str], Row] = {}

    def add(self, item: Any) -> None:
        """Take an item; its arrays are encoded here."""
        match item:
            case OpenTurn():
                self._open(item)
            case FinishedTurn():
                self._finish(item)
            case NextState():
                self._next_state(item)
            case Count():
                self._count(item)
            case RoleReport():
                self._report(item)
            case _:
                raise TypeError(f"not a journal item: {item!r}")

    def apply(self, connection: Connection) -> None:
        """Write all rows.

        Raises:
            JournalError: a finished turn is not open, or a next state's turn is not known.
            UnknownTurn: a next state came in a request whose conversation was deleted meanwhile.
            IntegrityError: the conversation of a turn was deleted after its request had come.
        """
        if self._turns:
            self._leave_out_deleted(connection)
        for statement, rows in (
            (sql.INSERT_TENANT, self._tenants.values()),
            (sql.UPSERT_SESSION, self._sessions.values()),
            (sql.INSERT_CONTENT, self._contents.values()),
            (sql.INSERT_HUGE_CONTENT, self._huge.values()),
            (sql.INSERT_TURN, self._turns.values()),
            (sql.INSERT_CONTENT_REF, self._refs.values()),
            (sql.INSERT_ANSWER, self._answers),
            (sql.INSERT_RESPONSE, self._responses),
            (sql.UPSERT_COUNTER, self._counts.values()),
            (sql.UPSERT_REPORT, self._reports.values()),
        ):
            if rows:
                statement.many(connection, list(rows))
        if self._prompts and sql.INSERT_PROMPT.many(connection, self._prompts) != len(
            self._prompts
        ):
            raise JournalError("the turn whose prompt was to be shared is gone")
        if self._finished:
            changed = sql.FINISH_TURN.many(connection, self._finished)
            if changed != len(self._finished):
                raise JournalError("a turn to finish is not open: it was aborted or never stored")
        if self._next_states:
            self._say_next_states(connection)
        if self._finished or self._turns:
            settle_scores(connection, self._rule)
            settle_next_states(connection)
        if self._reports:
            newest = max(row["seen_at"] for row in self._reports.values())
            connection.execute(sql.FORGET_REPORTS, {"before": newest - GONE_S})

    def _say_next_states(self, connection: Connection) -> None:
        for row in self._next_states:
            self._lost.refuse_deleted(row["child_id"])
        sql.INSERT_NEXT_STATE.many(connection, self._next_states)
        sql.QUEUE_JUDGING.many(connection, self._next_states)
        sql.REOPEN_FOR_JUDGING.many(connection, self._next_states)

    def _leave_out_deleted(self, connection: Connection) -> None:
        """Drop turns of conversations that a person has deleted since: what is theirs then fails.

        For a group, not for each turn: nearly always there is nothing to find.
        """
        oldest = min(row["created_at"] for row in self._turns.values())
        until = time.time() + CLOCK_S
        found = sql.DELETED_SINCE.fetch(connection, since=oldest, until=until)
        for session_id, deleted_at in found:
            for turn_id, row in list(self._turns.items()):
                if row["session_id"] == session_id and row["created_at"] <= deleted_at:
                    del self._turns[turn_id]

    # --- items to rows ------------------------------------------------------------------------

    def _open(self, turn: OpenTurn) -> None:
        scope = turn.scope
        scope_id = scope_digest(scope.tenant, scope.key, scope.user)
        now = turn.created_at
        self._tenants.setdefault(scope.tenant, {"tenant": scope.tenant, "created_at": now})
        self._sessions[turn.session_id] = {
            "session_id": turn.session_id,
            "tenant": scope.tenant,
            "policy": turn.policy,
            "scope": scope_id,
            "key_name": scope.key,
            "user_name": scope.user,
            "external": turn.external_session,
            "created_at": now,
            "last_at": now,
            "closed_at": None,
            "close_reason": None,
        }
        fate = turn.fate or (Fate.SIDE if turn.turn_type is TurnType.SIDE else None)
        self._turns[turn.turn_id] = {
            "turn_id": turn.turn_id,
            "session_id": turn.session_id,
            "tenant": scope.tenant,
            "policy": turn.policy,
            "scope": scope_id,
            "turn_type": turn.turn_type,
            "state": TurnState.OPEN,
            "fate": None,
            "planned_fate": fate,
            "parent_id": turn.parent_id,
            "superseded_by": None,
            "decisive": 0,
            "feedback": None,
            "completion_id": turn.completion_id,
            "choice": turn.choice,
            "request_chain": turn.request_chain,
            "answer_chain": None,
            "created_at": now,
            "answered_at": None,
            "owner": turn.owner,
            "prompt_tokens": len(turn.prompt_ids),
            "answer_tokens": None,
            "oldest_version": None,
            "newest_version": None,
            "group_id": turn.group,
            "trajectory": turn.trajectory,
            "step_index": turn.step_index,
            "trace": turn.trace,
        }
        self._prompts.append(self._prompt(turn))

    def _prompt(self, turn: OpenTurn) -> Row:
        """Store what the parent does not have; remember the whole for the turn's children."""
        ids = encode_ids(turn.prompt_ids)
        system, body = split_system(turn.messages)
        shared = self._memory.shared(turn.parent_id, turn.session_id, ids, body)
        self._memory.put(turn.turn_id, Remembered(turn.session_id, shared.depth, ids, body))

        store = self._store_for(turn.turn_id)
        suffix: bytes | None = ids[shared.ids * ID_BYTES :] if shared.ids else ids
        digest = None
        if suffix is not None and len(suffix) >= LARGE_BYTES:
            digest, suffix = store(suffix), None
        return {
            "turn_id": turn.turn_id,
            "base_id": shared.base_id,
            "depth": shared.depth,
            "shared_ids": shared.ids,
            "suffix_ids": suffix,
            "suffix_digest": digest,
            "system": encode_messages(system, store) if system else None,
            "shared_messages": shared.messages,
            "messages": encode_messages(body[shared.messages :], store),
            "tools_digest": store(turn.tools.encode()) if turn.tools else None,
            "options_digest": store(turn.options.encode()) if turn.options else None,
            "sampling": encode_sampling(turn.sampling),
            "link_reason": turn.link_reason,
            "link": encode_json(turn.link),
        }

    def _finish(self, turn: FinishedTurn) -> None:
        answer = encode_ids(turn.answer_ids)
        self._memory.finish(turn.turn_id, answer, turn.message)
        store = self._store_for(turn.turn_id)
        self._answers.append(
            {
                "turn_id": turn.turn_id,
                "answer_ids": answer,
                "logprobs": encode_logprobs(turn.logprobs),
                "versions": encode_versions(turn.versions),
                "message": encode_messages([turn.message], store),
                "finish_reason": turn.finish_reason,
                "first_token_s": turn.first_token_s,
                "total_s": turn.total_s,
                "error": None,
            }
        )
        if turn.response is not None:
            body, parts = cut(turn.response.body, turn.response.common, store)
            kept = {"own_messages": turn.response.own_messages, "body": body, "parts": parts}
            self._responses.append({"turn_id": turn.turn_id, **kept})
        numbers = [run.version for run in turn.versions]
        result: Row = {
            "answer_chain": turn.answer_chain,
            "answered_at": turn.answered_at,
            "answer_tokens": len(turn.answer_ids),
            "oldest_version": min(numbers, default=None),
            "newest_version": max(numbers, default=None),
        }
        fate = answer_fate(turn)
        opened = self._turns.get(turn.turn_id)
        if opened is None:
            self._finished.append({"turn_id": turn.turn_id, "fate": fate, **result})
            return
        fate = opened["planned_fate"] or fate
        opened.update(result, fate=fate, state=TurnState.ENDED if fate else TurnState.WAITING)

    def _next_state(self, state: NextState) -> None:
        self._next_states.append(
            {
                "turn_id": state.turn_id,
                "digest": state.digest,
                "child_id": state.child_id,
                "job_id": new_id(),
                "kind": next_state_kind(state.messages),
                "messages": encode_messages(state.messages, self._store_for(state.turn_id)),
                "created_at": time.time(),
            }
        )

    def _store_for(self, turn_id: str) -> Store:
        """Return what keeps large data by content, for as long as this turn's session is kept."""

        def store(data: bytes) -> bytes:
            digest = digest_of(data)
            contents = self._contents if len(data) < HUGE_BYTES else self._huge
            contents[digest] = {"digest": digest, "data": data}
            self._refs[turn_id, digest] = {"turn_id": turn_id, "digest": digest}
            return digest

        return store

    def _count(self, count: Count) -> None:
        key = (count.role, count.name, count.reason)
        row = self._counts.setdefault(
            key, {"role": key[0], "name": key[1], "reason": key[2], "amount": 0}
        )
        row["amount"] += count.amount

    def _report(self, report: RoleReport) -> None:
        self._reports[report.role, report.instance] = {
            "role": report.role,
            "instance": report.instance,
            "pid": report.pid,
            "state": report.state,
            "detail": encode_json(report.detail),
            "last_error": valid_text(report.last_error) if report.last_error else None,
            "last_error_at": report.last_error_at,
            "started_at": report.started_at,
            "seen_at": report.seen_at or time.time(),
            "pid_space": report.pid_space,
        }


def answer_fate(turn: FinishedTurn) -> Fate | None:
    """Return why an answer cannot train, judged by its arrays alone.

    A missing or non-finite log-probability is never replaced (rule 1), and an id whose version is
    not known is treated alike: such a turn is kept and never trains.
    """
    count = len(turn.answer_ids)
    if not count:
        return Fate.EMPTY_ANSWER
    if len(turn.logprobs) != count or not all_finite(turn.logprobs):
        return Fate.MISSING_LOGPROBS
    if sum(run.count for run in turn.versions) != count:
        return Fate.MISSING_LOGPROBS
    return None


def split_system(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Separate the leading system messages: a client may change them between requests."""
    count = 0
    while count < len(messages) and messages[count].role == "system":
        count += 1
    return list(messages[:count]), list(messages[count:])


def next_state_kind(messages: Sequence[Message]) -> str:
    """Return ``user`` if a person speaks in it, else ``tool`` or ``other``."""
    roles = {message.role for message in messages}
    if "user" in roles:
        return "user"
    return "tool" if "tool" in roles else "other"


def settle_scores(connection: Connection, rule: SampleRule) -> None:
    """Deal with feedback that came before its turn was answered."""
    for (turn_id,) in sql.SCORED_EARLY.fetch(connection):
        apply_feedback(connection, turn_id, rule)


def settle_next_states(connection: Connection) -> None:
    """Deal with next states that came before their turn ended."""
    for (turn_id,) in sql.EARLY.fetch(connection):
        for clause in (sql.DECIDE_EARLY, sql.QUEUE_EARLY, sql.JUDGE_EARLY):
            connection.execute(clause, {"turn_id": turn_id})
