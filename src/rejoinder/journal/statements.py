"""The statements of the frequent writes and reads, compiled once at import.

Standard SQL but for UPDATE with FROM; the ones that insert whole rows are made from the schema.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from rejoinder.journal import schema
from rejoinder.journal.database import ROWS_AT_ONCE, Query, RowsStatement
from rejoinder.types import TurnType

JUDGEABLE = """(
    t.superseded_by IS NULL AND t.decisive = 0
    AND (t.state IN ('waiting', 'judging', 'judged', 'no_verdict')
         OR t.state = 'sampled' AND EXISTS (
            SELECT 1 FROM samples s WHERE s.turn_id = t.turn_id AND s.queued = 1)
         OR t.state = 'ended' AND t.fate IN ('no_next_state', 'ambiguous_parent'))
)"""
"""Of a turn ``t``: a new next state is worth a judging job. A sample that a person's score made may
still be given a hint, until it is consumed."""

OUTCOME = f"""CASE
    WHEN t.state = 'open' THEN 'early'
    WHEN {JUDGEABLE} THEN 'queued'
    WHEN t.feedback IS NOT NULL THEN 'feedback'
    WHEN t.decisive = 1 THEN 'decided'
    ELSE COALESCE(t.fate, t.state)
END"""
"""Of a turn ``t``: what becomes of a new next state. ``early`` is settled when it is answered."""


def _insert(
    table: sa.Table, then: str = "", rows_at_once: Sequence[int] = ROWS_AT_ONCE
) -> RowsStatement:
    names = table.c.keys()
    into = f"INSERT INTO {table.name} ({', '.join(names)})"
    return RowsStatement(f"{into} VALUES {{values}} {then}", names, rows_at_once)


def _insert_new(table: sa.Table, rows_at_once: Sequence[int] = ROWS_AT_ONCE) -> RowsStatement:
    return _insert(table, "ON CONFLICT DO NOTHING", rows_at_once)


def _upsert(table: sa.Table) -> RowsStatement:
    """Insert a row or overwrite all but its key."""
    keys = table.primary_key.columns.keys()
    fresh = [f"{c.name} = excluded.{c.name}" for c in table.c if c.name not in keys]
    return _insert(table, f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(fresh)}")


# --- capture ---------------------------------------------------------------------------------

INSERT_TENANT = _insert_new(schema.tenants)
INSERT_CONTENT = _insert_new(schema.contents)
INSERT_HUGE_CONTENT = _insert_new(schema.contents, [1])
"""One at a time: a kept statement holds copies of its last values until it runs again."""
INSERT_TURN = _insert(schema.turns)
INSERT_ANSWER = _insert(schema.answers)
INSERT_RESPONSE = _insert(schema.responses)
UPSERT_REPORT = _upsert(schema.role_reports)
FORGET_REPORTS = sa.text("DELETE FROM role_reports WHERE seen_at < :before")

INSERT_PROMPT = RowsStatement(
    f"""
    INSERT INTO prompts ({", ".join(schema.prompts.c.keys())})
    SELECT * FROM {{given}}
    WHERE base_id IS NULL OR EXISTS (SELECT 1 FROM answers a WHERE a.turn_id = given.base_id)
    """,  # noqa: S608 - made of the schema's names
    schema.prompts.c.keys(),
)
"""Inserts nothing if the base is gone: retention may have deleted it in another process."""

UPSERT_SESSION = _insert(
    schema.sessions,
    """
    ON CONFLICT (session_id) DO UPDATE
    SET last_at = excluded.last_at, closed_at = NULL, close_reason = NULL
    """,
)

INSERT_CONTENT_REF = RowsStatement(
    """
    INSERT INTO content_refs (session_id, digest)
    SELECT t.session_id, given.digest FROM {given} JOIN turns t ON t.turn_id = given.turn_id
    WHERE true ON CONFLICT DO NOTHING
    """,
    ["turn_id", "digest"],
)

UPSERT_COUNTER = _insert(
    schema.counters,
    """
    ON CONFLICT (role, name, reason) DO UPDATE SET amount = counters.amount + excluded.amount
    """,
)

FINISH_TURN = RowsStatement(
    """
    UPDATE turns SET
        fate = COALESCE(
            planned_fate, CASE WHEN superseded_by IS NOT NULL THEN 'superseded' END, given.fate),
        state = CASE WHEN COALESCE(planned_fate, superseded_by, given.fate) IS NULL
                     THEN 'waiting' ELSE 'ended' END,
        answer_chain = given.answer_chain, answered_at = given.answered_at,
        answer_tokens = given.answer_tokens, oldest_version = given.oldest_version,
        newest_version = given.newest_version
    FROM {given}
    WHERE turns.turn_id = given.turn_id AND turns.state = 'open'
    """,
    [
        "turn_id",
        "fate",
        "answer_chain",
        "answered_at",
        "answer_tokens",
        "oldest_version",
        "newest_version",
    ],
)

INSERT_NEXT_STATE = RowsStatement(
    f"""
    INSERT INTO next_states (turn_id, digest, child_id, job_id, kind, messages, created_at, outcome)
    SELECT given.turn_id, given.digest, given.child_id, given.job_id, given.kind, given.messages,
           given.created_at,
           COALESCE((SELECT {OUTCOME} FROM turns t WHERE t.turn_id = given.turn_id), 'unknown')
    FROM {{given}} WHERE true
    ON CONFLICT (turn_id, digest) DO NOTHING
    """,  # noqa: S608 - made of constants
    ["turn_id", "digest", "child_id", "job_id", "kind", "messages", "created_at"],
)
"""An unknown turn breaks the foreign key."""

_JOB_FIELDS = """
    INSERT INTO judge_jobs (job_id, turn_id, digest, tenant, policy, created_at, due_at, fence,
                            attempt)
    SELECT n.job_id, n.turn_id, n.digest, t.tenant, t.policy, n.created_at, n.created_at, 0, 0
"""

QUEUE_JUDGING = RowsStatement(
    f"""{_JOB_FIELDS}
    FROM {{given}} JOIN next_states n ON n.turn_id = given.turn_id AND n.digest = given.digest
         JOIN turns t ON t.turn_id = n.turn_id
    WHERE n.job_id = given.job_id AND n.outcome = 'queued'
    ON CONFLICT DO NOTHING
    """,
    ["turn_id", "digest", "job_id"],
)

REOPEN_FOR_JUDGING = RowsStatement(
    """
    UPDATE turns SET state = 'judging', fate = NULL FROM {given}
    WHERE turns.turn_id = given.turn_id AND state <> 'sampled'
          AND EXISTS (SELECT 1 FROM judge_jobs j WHERE j.job_id = given.job_id)
    """,
    ["turn_id", "job_id"],
)

DELETED_SINCE = Query(
    sa.text("""
    SELECT session_id, deleted_at FROM deletions
    WHERE deleted_at >= :since AND deleted_at <= :until
    """)
)

# --- settling what came before its answer ----------------------------------------------------

SCORED_EARLY = Query(
    sa.text("SELECT turn_id FROM turns WHERE state = 'waiting' AND feedback IS NOT NULL")
)

EARLY = Query(
    sa.text("""
    SELECT DISTINCT n.turn_id FROM next_states n JOIN turns t ON t.turn_id = n.turn_id
    WHERE n.outcome = 'early' AND t.state <> 'open'
    """)
)

DECIDE_EARLY = sa.text(f"""
    UPDATE next_states SET outcome = (
        SELECT {OUTCOME} FROM turns t WHERE t.turn_id = next_states.turn_id)
    WHERE outcome = 'early' AND turn_id = :turn_id
""")  # noqa: S608 - made of constants

QUEUE_EARLY = sa.text(f"""{_JOB_FIELDS}
    FROM next_states n JOIN turns t ON t.turn_id = n.turn_id
    WHERE n.turn_id = :turn_id AND n.outcome = 'queued' ON CONFLICT DO NOTHING
""")

JUDGE_EARLY = sa.text("""
    UPDATE turns SET state = 'judging', fate = NULL
    WHERE turn_id = :turn_id AND state IN ('waiting', 'judged')
          AND EXISTS (SELECT 1 FROM judge_jobs j WHERE j.turn_id = :turn_id)
""")

# --- linking ---------------------------------------------------------------------------------


def _find_chain(within: str = "") -> Query:
    """Find the newest turns of each type, so that none of one type hides those of the other."""
    newest = [
        f"""SELECT * FROM (
    SELECT t.turn_id, t.session_id, s.external, t.answer_chain, t.superseded_by IS NOT NULL,
           t.trace, t.turn_type = 'side'
    FROM turns t JOIN sessions s ON s.session_id = t.session_id
    WHERE t.scope = :scope AND t.answer_chain = :chain AND t.turn_type = '{type_}' {within}
    ORDER BY t.created_at DESC LIMIT :most) AS newest_{type_}"""  # noqa: S608 - made of this file's own texts
        for type_ in TurnType
    ]
    return Query(sa.text(" UNION ALL ".join(newest)))


FIND_CHAIN = _find_chain()

FIND_CHAIN_IN_SESSION = _find_chain("""AND t.session_id IN (
        SELECT session_id FROM sessions WHERE scope = :scope AND external = :external
        UNION SELECT :external)""")

FIND_REQUEST = Query(
    sa.text("""
    SELECT turn_id, session_id, parent_id, created_at, state = 'open', trace
    FROM turns WHERE scope = :scope AND request_chain = :chain
    ORDER BY created_at DESC LIMIT :most
    """)
)

FIND_REQUEST_IN_SESSION = Query(
    sa.text("""
    SELECT t.turn_id, t.session_id, t.parent_id, t.created_at, t.state = 'open', t.trace
    FROM turns t
    WHERE +t.scope = :scope AND t.request_chain = :chain AND t.session_id IN (
        SELECT session_id FROM sessions WHERE scope = :scope AND external = :external
        UNION SELECT :external)
    ORDER BY t.created_at DESC LIMIT :most
    """)
)

FIND_SESSION = Query(
    sa.text("""
    SELECT session_id FROM sessions
    WHERE scope = :scope AND (external = :name OR session_id = :name)
    ORDER BY session_id = :name, created_at LIMIT 1
    """)
)
