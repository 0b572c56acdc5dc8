"""All tables, declared once. Migrations are tested to give exactly this.

Times are Unix seconds; truth values are 0 and 1. Ids are 32 hexadecimal digits that sort by
creation. Columns named ``*_ids`` and ``logprobs`` hold little-endian arrays (``columns.py``);
binary columns with text in them hold UTF-8 JSON. Every row belongs to a tenant, directly or by its
turn.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    and_,
)

REVISION = "0013"
"""The newest migration; a database at another revision is upgraded or refused."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _where(condition: ColumnElement[bool]) -> dict[str, Any]:
    """Return the arguments that make an index partial in every database."""
    return {"sqlite_where": condition, "postgresql_where": condition}


def _turn_key(*, primary_key: bool = True) -> Column[str]:
    """Return the column of a row that lives and dies with its turn."""
    return Column(
        "turn_id",
        Text,
        ForeignKey("turns.turn_id", ondelete="CASCADE"),
        primary_key=primary_key,
        nullable=False,
    )


# --- conversations ---------------------------------------------------------------------------

tenants = Table(
    "tenants",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("created_at", Double, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.tenant"), nullable=False),
    Column("policy", Text, nullable=False),
    Column("scope", LargeBinary, nullable=False),  # digest of tenant, key name and user
    Column("key_name", Text, nullable=False),
    Column("user_name", Text, nullable=False),
    Column("external", Text),  # what the client called it
    Column("created_at", Double, nullable=False),
    Column("last_at", Double, nullable=False),
    Column("closed_at", Double),
    Column("close_reason", Text),
)
Index(
    "ix_sessions_external",
    sessions.c.scope,
    sessions.c.external,
    **_where(sessions.c.external.is_not(None)),
)
Index("ix_sessions_closed", sessions.c.closed_at, sessions.c.last_at)

turns = Table(
    "turns",
    metadata,
    Column("turn_id", Text, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.session_id"), nullable=False),
    Column("tenant", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("scope", LargeBinary, nullable=False),
    Column("turn_type", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("fate", Text),
    Column("planned_fate", Text),  # known at the start; becomes the fate when answered
    Column("parent_id", Text),  # no foreign key: retention may delete the parent's session
    Column("superseded_by", Text),
    Column("decisive", Integer, nullable=False),
    Column("feedback", Integer),  # a person's own score
    Column("completion_id", Text, nullable=False),
    Column("choice", Integer, nullable=False),
    Column("request_chain", LargeBinary, nullable=False),
    Column("answer_chain", LargeBinary),
    Column("created_at", Double, nullable=False),
    Column("answered_at", Double),
    Column("owner", Text, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("answer_tokens", Integer),
    Column("oldest_version", Integer),
    Column("newest_version", Integer),
    Column("group_id", Text),
    Column("trajectory", Text),
    Column("step_index", Integer),
    Column("trace", LargeBinary),  # the client's W3C trace id
)
Index(
    "ix_turns_answer_chain",
    turns.c.scope,
    turns.c.answer_chain,
    turns.c.turn_type,
    turns.c.created_at,
    **_where(turns.c.answer_chain.is_not(None)),
)
Index("ix_turns_request_chain", turns.c.scope, turns.c.request_chain, turns.c.created_at)
Index("ix_turns_session", turns.c.session_id, turns.c.request_chain)
Index("ix_turns_completion", turns.c.completion_id, turns.c.choice)
Index("ix_turns_status", turns.c.policy, turns.c.state, turns.c.fate, turns.c.turn_type)
Index(
    "ix_turns_open",
    turns.c.owner,
    **_where(turns.c.state == "open"),
)
Index(
    "ix_turns_scored_early",
    turns.c.turn_id,
    **_where(and_(turns.c.state == "waiting", turns.c.feedback.is_not(None))),
)

prompts = Table(
    "prompts",
    metadata,
    _turn_key(),
    # Same session, so deleted together; the insert asks for it: a foreign key needs an index.
    Column("base_id", Text),
    Column("depth", Integer, nullable=False),  # how many prompts a decoder reads before this one
    Column("shared_ids", Integer, nullable=False),  # leading ids of base prompt + base answer
    Column("suffix_ids", LargeBinary),  # None: in ``contents`` under ``suffix_digest``
    Column("suffix_digest", LargeBinary),
    Column("system", LargeBinary),  # JSON of the leading system messages
    Column("shared_messages", Integer, nullable=False),
    Column("messages", LargeBinary, nullable=False),  # JSON of the others after the shared ones
    Column("tools_digest", LargeBinary),
    Column("sampling", LargeBinary, nullable=False),
    Column("link_reason", Text, nullable=False),
    Column("link", LargeBinary),  # JSON: which rules decided; None for turns of before
    Column("options_digest", LargeBinary),  # of further template arguments; None without any
)

answers = Table(
    "answers",
    metadata,
    _turn_key(),
    Column("answer_ids", LargeBinary, nullable=False),
    Column("logprobs", LargeBinary, nullable=False),
    Column("versions", LargeBinary, nullable=False),
    Column("message", LargeBinary),  # JSON; None for an aborted answer
    Column("finish_reason", Text),
    Column("first_token_s", Double),
    Column("total_s", Double),
    Column("error", Text),
)

responses = Table(
    "responses",
    metadata,
    _turn_key(),
    Column("own_messages", Integer, nullable=False),  # leading ones that no later request repeats
    Column("body", LargeBinary, nullable=False),  # JSON, as the client was sent it, without parts
    Column("parts", LargeBinary),  # where which contents stand in the body; NULL: nowhere
)

contents = Table(
    "contents",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

content_refs = Table(
    "content_refs",
    metadata,
    Column("session_id", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    PrimaryKeyConstraint("session_id", "digest"),
    sqlite_with_rowid=False,
)
Index("ix_content_refs_digest", content_refs.c.digest)

deletions = Table(
    "deletions",
    metadata,
    Column("session_id", Text, primary_key=True),
    # Requests that were accepted before it stay out; later ones of this id are a new conversation.
    Column("deleted_at", Double, nullable=False),
)
Index("ix_deletions_deleted", deletions.c.deleted_at)

# --- judging ---------------------------------------------------------------------------------

next_states = Table(
    "next_states",
    metadata,
    _turn_key(primary_key=False),
    Column("digest", LargeBinary, nullable=False),
    Column("child_id", Text, nullable=False),  # of words beside a score an id of their own
    Column("job_id", Text, nullable=False),  # of the job this row gave, if it gave one
    Column("kind", Text, nullable=False),  # user, tool or other; feedback: words beside a score
    Column("messages", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("outcome", Text, nullable=False),
    # early, queued; verdict, no_verdict; hint, no_hint where no judge was asked; or why not read
    Column("no_hint", Text),  # why it gave no hint, where a hint judge read it
    PrimaryKeyConstraint("turn_id", "digest"),
)
Index(
    "ix_next_states_early",
    next_states.c.turn_id,
    **_where(next_states.c.outcome == "early"),
)

judge_jobs = Table(
    "judge_jobs",
    metadata,
    Column("job_id", Text, primary_key=True),
    _turn_key(primary_key=False),
    Column("digest", LargeBinary, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("due_at", Double, nullable=False),  # earliest claim: retry time, or end of the lease
    Column("fence", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("owner", Text),
    Column("last_error", Text),
    UniqueConstraint("turn_id", "digest"),
)
Index("ix_judge_jobs_queue", judge_jobs.c.created_at, judge_jobs.c.due_at)

verdicts = Table(
    "verdicts",
    metadata,
    Column("verdict_id", Text, primary_key=True),
    _turn_key(primary_key=False),
    Column("digest", LargeBinary, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("source", Text, nullable=False),  # judge or feedback
    Column("kind", Text, nullable=False),  # of the next state
    Column("score", Integer),  # None: no verdict
    Column("why", Text),
    Column("votes", LargeBinary, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("created_at", Double, nullable=False),
    UniqueConstraint("turn_id", "digest", "fingerprint"),
)
Index("ix_verdicts_histogram", verdicts.c.policy, verdicts.c.kind, verdicts.c.score, verdicts.c.why)
Index("ix_verdicts_recent", verdicts.c.policy, verdicts.c.created_at)

hints = Table(
    "hints",
    metadata,
    _turn_key(primary_key=False),
    Column("position", Integer, nullable=False),
    Column("text", Text, nullable=False),
    # Which hint judge drew it (``HintMaker``); None for hints of before, and without a model.
    Column("fingerprint", Text),
    Column("kind", Text),
    Column("model", Text),
    Column("prompt", Text),
    PrimaryKeyConstraint("turn_id", "position"),
)

feedback = Table(
    "feedback",
    metadata,
    Column("feedback_id", Text, primary_key=True),
    _turn_key(primary_key=False),
    Column("score", Integer, nullable=False),
    Column("text", Text),
    Column("outcome", Text, nullable=False),
    Column("created_at", Double, nullable=False),
)
Index("ix_feedback_turn", feedback.c.turn_id)

# --- training --------------------------------------------------------------------------------

samples = Table(
    "samples",
    metadata,
    Column("sample_id", Text, primary_key=True),
    _turn_key(primary_key=False),
    Column("session_id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("reward", Double),
    Column("source", Text, nullable=False),
    Column("fate", Text),  # why it was dropped or cancelled
    # 1 while no lineage that counts has consumed it: an index over ``consumption``, which is
    # the truth and which every commit asks; rewind and rollback set it again.
    Column("queued", Integer, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("oldest_version", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double),
    UniqueConstraint("turn_id"),
)
Index(
    "ix_samples_queue",
    samples.c.policy,
    samples.c.created_at,
    samples.c.oldest_version,
    samples.c.tokens,
    **_where(samples.c.queued == 1),
)
Index("ix_samples_fate", samples.c.policy, samples.c.fate)

lineages = Table(
    "lineages",
    metadata,
    Column("lineage_id", Text, primary_key=True),
    Column("policy", Text, ForeignKey("policies.policy"), nullable=False),
    Column("parent_id", Text, ForeignKey("lineages.lineage_id")),
    Column("from_version", Integer, nullable=False),
    Column("replay", Integer, nullable=False),  # what the parent consumed later is free again
    Column("reason", Text),  # why the trainer opened it; none where a person did
    Column("created_at", Double, nullable=False),
    Column("closed_at", Double),
)
Index(
    "uq_lineages_open",
    lineages.c.policy,
    unique=True,
    **_where(lineages.c.closed_at.is_(None)),
)

steps = Table(
    "steps",
    metadata,
    Column("policy", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("lineage_id", Text, ForeignKey("lineages.lineage_id"), nullable=False),
    Column("step", Integer, nullable=False),
    Column("samples", Integer, nullable=False),
    Column("mean_score", Double),
    Column("metrics", LargeBinary, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("finished_at", Double, nullable=False),
    Column("orphaned_at", Double),
    Column("untrained", LargeBinary),  # {reason: samples} that changed no weights; NULL: none
    PrimaryKeyConstraint("policy", "version"),
)
Index(
    "uq_steps_lineage_step",
    steps.c.lineage_id,
    steps.c.step,
    unique=True,
    **_where(steps.c.orphaned_at.is_(None)),
)

consumption = Table(
    "consumption",
    metadata,
    Column("lineage_id", Text, ForeignKey("lineages.lineage_id"), nullable=False),
    Column("sample_id", Text, ForeignKey("samples.sample_id", ondelete="CASCADE"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("untrained", Text),  # why it changed no weights; NULL: it did
    PrimaryKeyConstraint("lineage_id", "sample_id"),
    sqlite_with_rowid=False,
)
Index("ix_consumption_sample", consumption.c.sample_id)
Index("ix_consumption_version", consumption.c.lineage_id, consumption.c.version)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("expires_at", Double, nullable=False),
)

# --- policies --------------------------------------------------------------------------------

policies = Table(
    "policies",
    metadata,
    Column("policy", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.tenant"), nullable=False),
    Column("base_uri", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("created_at", Double, nullable=False),
)

policy_versions = Table(
    "policy_versions",
    metadata,
    Column("policy", Text, ForeignKey("policies.policy"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("uri", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("base_uri", Text, nullable=False),
    Column("parent", Integer),
    Column("lineage_id", Text, ForeignKey("lineages.lineage_id")),
    Column("step", Integer),
    Column("state", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("live_at", Double),  # when it last became live
    Column("checkpoint_uri", Text),
    Column("pinned", Integer, nullable=False),
    Column("files", Integer, nullable=False),
    Column("metrics", LargeBinary, nullable=False),
    PrimaryKeyConstraint("policy", "version"),
)
Index(
    "uq_policy_versions_live",
    policy_versions.c.policy,
    unique=True,
    **_where(policy_versions.c.state == "live"),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("evaluation_id", Text, primary_key=True),
    Column("policy", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("score", Double, nullable=False),
    Column("detail", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
)
Index("ix_evaluations_version", evaluations.c.policy, evaluations.c.version)

# --- watching --------------------------------------------------------------------------------

role_reports = Table(
    "role_reports",
    metadata,
    Column("role", Text, nullable=False),
    Column("instance", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("detail", LargeBinary, nullable=False),
    Column("last_error", Text),
    Column("last_error_at", Double),
    Column("started_at", Double, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("pid_space", Text),
    PrimaryKeyConstraint("role", "instance"),
)

counters = Table(
    "counters",
    metadata,
    Column("role", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("amount", BigInteger, nullable=False),
    PrimaryKeyConstraint("role", "name", "reason"),
)
