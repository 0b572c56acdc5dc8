"""The statements of the frequent writes and reads, compiled once at import.

Standard SQL with named values; the ones that insert whole rows are made from the schema.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from rejoinder.journal import schema
from rejoinder.journal.database import Statement
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


def _insert(table: sa.Table) -> sa.Insert:
    return sa.insert(table).values({column.name: sa.bindparam(column.name) for column in table.c})


def _insert_new(table: sa.Table, *omitted: str) -> Statement:
    names = [column.name for column in table.c if column.name not in omitted]
    clause = insert(table).values({name: sa.bindparam(name) for name in names})
    return Statement(clause.on_conflict_do_nothing())


def _upsert(table: sa.Table) -> Statement:
    """Insert a row or overwrite all but its key."""
    clause = insert(table).values({column.name: sa.bindparam(column.name) for column in table.c})
    keys = [column.name for column in table.primary_key]
    fresh = {c.name: clause.excluded[c.name] for c in table.c if c.name not in keys}
    return Statement(clause.on_conflict_do_update(index_elements=keys, set_=fresh))


# --- capture ---------------------------------------------------------------------------------

INSERT_TENANT = _insert_new(schema.tenants)
INSERT_CONTENT = _insert_new(schema.contents)
INSERT_TURN = Statement(_insert(schema.turns))
INSERT_ANSWER = Statement(_insert(schema.answers))
INSERT_RESPONSE = Statement(_insert(schema.responses))
UPSERT_REPORT = _upsert(schema.role_reports)
FORGET_REPORTS = Statement(sa.text("DELETE FROM role_reports WHERE seen_at < :before"))

INSERT_PROMPT = Statement(
    sa.insert(schema.prompts).from_select(
        [column.name for column in schema.prompts.c],
        sa.select(*[sa.bindparam(column.name) for column in schema.prompts.c]).where(
            sa.text("(:base IS NULL OR EXISTS (SELECT 1 FROM answers WHERE turn_id = :base))")
        ),
    )
)
"""Inserts nothing if the base is gone: retention may have deleted it in another process."""

UPSERT_SESSION = Statement(
    sa.text("""
    INSERT INTO sessions (session_id, tenant, policy, scope, key_name, user_name, external,
                          created_at, last_at)
    VALUES (:session_id, :tenant, :policy, :scope, :key_name, :user_name, :external,
            :created_at, :last_at)
    ON CONFLICT (session_id) DO UPDATE
    SET last_at = excluded.last_at, closed_at = NULL, close_reason = NULL
    """)
)

INSERT_CONTENT_REF = Statement(
    sa.text("""
    INSERT INTO content_refs (session_id, digest)
    SELECT session_id, :digest FROM turns WHERE turn_id = :turn_id
    ON CONFLICT DO NOTHING
    """)
)

UPSERT_COUNTER = Statement(
    sa.text("""
    INSERT INTO counters (role, name, reason, amount) VALUES (:role, :name, :reason, :amount)
    ON CONFLICT (role, name, reason) DO UPDATE SET amount = counters.amount + excluded.amount
    """)
)

FINISH_TURN = Statement(
    sa.text("""
    UPDATE turns SET
        fate = COALESCE(
            planned_fate, CASE WHEN superseded_by IS NOT NULL THEN 'superseded' END, :fate),
        state = CASE WHEN COALESCE(planned_fate, superseded_by, :fate) IS NULL
                     THEN 'waiting' ELSE 'ended' END,
        answer_chain = :answer_chain, answered_at = :answered_at, answer_tokens = :answer_tokens,
        oldest_version = :oldest_version, newest_version = :newest_version
    WHERE turn_id = :turn_id AND state = 'open'
    """)
)

INSERT_NEXT_STATE = Statement(
    sa.text(f"""
    INSERT INTO next_states (turn_id, digest, child_id, job_id, kind, messages, created_at, outcome)
    VALUES (:turn_id, :digest, :child_id, :job_id, :kind, :messages, :created_at,
            COALESCE((SELECT {OUTCOME} FROM turns t WHERE t.turn_id = :turn_id), 'unknown'))
    ON CONFLICT (turn_id, digest) DO NOTHING
    """)  # noqa: S608 - made of constants
)
"""An unknown turn breaks the foreign key."""

_JOB_FIELDS = """
    INSERT INTO judge_jobs (job_id, turn_id, digest, tenant, policy, created_at, due_at, fence,
                            attempt)
    SELECT n.job_id, n.turn_id, n.digest, t.tenant, t.policy, n.created_at, n.created_at, 0, 0
    FROM next_states n JOIN turns t ON t.turn_id = n.turn_id
"""

QUEUE_JUDGING = Statement(
    sa.text(f"""{_JOB_FIELDS}
    WHERE n.turn_id = :turn_id AND n.digest = :digest AND n.job_id = :job_id
          AND n.outcome = 'queued'
    ON CONFLICT DO NOTHING
    """)
)

REOPEN_FOR_JUDGING = Statement(
    sa.text("""
    UPDATE turns SET state = 'judging', fate = NULL
    WHERE turn_id = :turn_id AND state <> 'sampled'
          AND EXISTS (SELECT 1 FROM judge_jobs j WHERE j.job_id = :job_id)
    """)
)

# --- settling what came before its answer ----------------------------------------------------

SCORED_EARLY = Statement(
    sa.text("SELECT turn_id FROM turns WHERE state = 'waiting' AND feedback IS NOT NULL")
)

EARLY = Statement(
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
    WHERE n.turn_id = :turn_id AND n.outcome = 'queued' ON CONFLICT DO NOTHING
""")

JUDGE_EARLY = sa.text("""
    UPDATE turns SET state = 'judging', fate = NULL
    WHERE turn_id = :turn_id AND state IN ('waiting', 'judged')
          AND EXISTS (SELECT 1 FROM judge_jobs j WHERE j.turn_id = :turn_id)
""")

# --- linking ---------------------------------------------------------------------------------


def _find_chain(within: str = "") -> Statement:
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
    return Statement(sa.text(" UNION ALL ".join(newest)))


FIND_CHAIN = _find_chain()

FIND_CHAIN_IN_SESSION = _find_chain("""AND t.session_id IN (
        SELECT session_id FROM sessions WHERE scope = :scope AND external = :external
        UNION SELECT :external)""")

FIND_REQUEST = Statement(
    sa.text("""
    SELECT turn_id, session_id, parent_id, created_at, state = 'open', trace
    FROM turns WHERE scope = :scope AND request_chain = :chain
    ORDER BY created_at DESC LIMIT :most
    """)
)

FIND_REQUEST_IN_SESSION = Statement(
    sa.text("""
    SELECT t.turn_id, t.session_id, t.parent_id, t.created_at, t.state = 'open', t.trace
    FROM turns t
    WHERE +t.scope = :scope AND t.request_chain = :chain AND t.session_id IN (
        SELECT session_id FROM sessions WHERE scope = :scope AND external = :external
        UNION SELECT :external)
    ORDER BY t.created_at DESC LIMIT :most
    """)
)

FIND_SESSION = Statement(
    sa.text("""
    SELECT session_id FROM sessions
    WHERE scope = :scope AND (external = :name OR session_id = :name)
    ORDER BY session_id = :name, created_at LIMIT 1
    """)
)
