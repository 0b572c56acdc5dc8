"""``[gateway]``: the HTTP side, and how it finds sessions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from rejoinder.config.section import Section

LOOPBACK = ("127.0.0.1", "::1", "localhost")


MAX_OPENING_CHARS = 200


class SessionRule(Section):
    """Where to find a session's id in requests of clients that send no header for it.

    Asked in order, when neither header, URL, body nor metadata names a session; the first rule that
    finds an id decides. Texts are searched for literally, so that a request costs no more than its
    length whatever its writer puts into it. Built in are rules for OpenClaw, Claude Code
    and Codex.
    """

    name: str = Field(pattern=r"^[a-z0-9_-]{1,32}$")
    """How ``rejoinder explain turn`` calls the rule."""
    look_in: str = Field(
        pattern=r"^(first_user|system|prompt_cache_key|header\.[A-Za-z0-9-]{1,64}|metadata\..{1,64})$"
    )
    """``first_user`` (the first user message), ``system`` (the first system message),
    ``prompt_cache_key`` (the body's field), ``header.NAME`` or ``metadata.NAME``."""
    after: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field((), max_length=8)
    """Texts before the id, in this order, each after the one before it. The id is then the letters,
    digits and ``_-.:@/+=~`` that follow, at most 256. Without any, the whole value is the id."""

    @model_validator(mode="after")
    def _has_a_mark(self) -> SessionRule:
        if self.look_in in ("first_user", "system") and not self.after:
            raise ValueError(f"a session rule that looks in {self.look_in} needs after")
        return self


# What programs are known to send.
OPENCLAW_SESSION = SessionRule(
    name="openclaw", look_in="first_user", after=("\n\nRuntime: agent=", "| sessionId=")
)


CLAUDE_CODE_SESSIONS = (
    SessionRule(name="claude-code", look_in="header.X-Claude-Code-Session-Id"),
    SessionRule(name="claude-code-id", look_in="metadata.user_id", after=('"session_id":"',)),
    SessionRule(name="claude-code-old", look_in="metadata.user_id", after=("_session_",)),
)
"""In the order in which its versions came up with them, the newest first."""
CODEX_SESSION = SessionRule(name="codex", look_in="header.Thread-Id")
"""Not its ``Session-Id``, which all its helpers share."""


SIDE_OPENINGS = (
    "read heartbeat.md",
    "follow the heartbeat monitor",
    "a scheduled reminder has been triggered",
    "a scheduled cron event was triggered",
    "an async command you ran earlier ",
    "an async command completion event was triggered",
    "<conversation>\n[user]:",
    "based on this conversation, generate a short 1-2 word filename slug",
    "pre-compaction memory flush",
    "critical: respond with text only. do not call any tools.\n\n- do not use read, bash",
    "you are performing a context checkpoint compaction.",
    "<session>\n",
    "please generate a four to five word title",
    "please write a 5-10 word title",
    "generate a title for this conversation",
    "### task:\ngenerate a concise",
    "### task:\ngenerate 1-3 broad tags",
    "### task:\nsuggest 3-5 relevant follow-up",
)


class KeyLimits(Section):
    """Limits of one API key in place of the gateway's own; what is not set stays as there."""

    key: str = Field(min_length=1)
    """The key's name in ``REJOINDER_API_KEYS``; ``local`` where the gateway has no keys."""
    max_concurrent: int | None = Field(None, ge=1)
    requests_per_minute: int | None = Field(None, ge=1)
    tokens_per_minute: int | None = Field(None, ge=1)


class GatewayConfig(Section):
    """The HTTP side."""

    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    workers: int = Field(1, ge=1, le=64)
    require_keys: bool = False
    """Also on loopback; off loopback keys are always required."""
    metrics_keys: tuple[str, ...] = Field((), max_length=100)
    """Names of the keys that may read ``/metrics``, which counts all tenants together. None named:
    every key where there is one tenant, no key where there are several."""
    max_body_bytes: int = Field(8 << 20, ge=1024)
    max_head_bytes: int = Field(64 << 10, ge=4096)
    """Request line and headers of one request; longer ones get 431."""
    max_answer_tokens: int = Field(65_536, ge=1)
    """Sampled tokens of one response. Each of ``n`` answers has an equal part, and ends with
    ``length`` there."""
    max_concurrent: int = Field(256, ge=1)
    """Requests in progress per key, in all workers together; the next one gets 429."""
    requests_per_minute: int | None = Field(None, ge=1)
    """Per key, in all workers together: so many at once, then evenly; not set: any number."""
    tokens_per_minute: int | None = Field(None, ge=1)
    """Per key, in all workers together: prompt and sampled tokens, counted when a request ends.
    A key that is over its tokens gets 429 until it has made up for it; not set: any number."""
    key_limits: tuple[KeyLimits, ...] = Field((), max_length=1000)
    max_queued: int = Field(1024, ge=1)
    """Requests in progress per worker in all; the next one gets 429. The last eighth of the places
    is for keys that have no other request there."""
    max_connections: int = Field(4096, ge=1)
    """Open connections per worker; the next one gets 503."""
    request_timeout_s: float = Field(600.0, gt=0)
    engine_wait_s: float = Field(30.0, ge=0)
    """How long requests without a token wait for an engine that is away or starts again."""
    default_max_tokens: int = Field(512, ge=1)
    session_idle_s: float = Field(1800.0, gt=0)
    """A session without a request for so long is closed; a later match reopens it."""
    train_truncated_sampling: bool = False
    """Let turns sampled with top_p, top_k, min_p or penalties train. Off: served only."""
    hold_calls: bool = True
    """Hold a call that a client asks for (``tool_choice``) to its function's schema. Such turns are
    served only; off: the model writes the call freely, and they train."""
    main_temperature: float | None = Field(None, ge=0.05, le=2.0)
    """Overrides the temperature of main turns (and drops truncation), so that they train."""
    side_openings: tuple[Annotated[str, Field(min_length=1, max_length=MAX_OPENING_CHARS)], ...] = (
        Field(SIDE_OPENINGS, max_length=100)
    )
    """A request whose last user message begins so is a side turn unless it says its type: programs
    ask so for titles, heartbeats and memory. Lower case, and compared without regard to case."""
    session_rules: tuple[SessionRule, ...] = Field(
        (OPENCLAW_SESSION, *CLAUDE_CODE_SESSIONS, CODEX_SESSION), max_length=16
    )
    drain_s: float = Field(30.0, ge=0)
    """How long answers in progress may take after SIGTERM; then they are ended and recorded so."""

    @field_validator("key_limits")
    @classmethod
    def _name_each_key_once(cls, limits: tuple[KeyLimits, ...]) -> tuple[KeyLimits, ...]:
        names = [one.key for one in limits]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"the key {twice!r} is there twice")
        return limits

    @field_validator("side_openings")
    @classmethod
    def _are_lower_case(cls, openings: tuple[str, ...]) -> tuple[str, ...]:
        if any(opening != opening.lower() for opening in openings):
            raise ValueError("write them in lower case")
        return openings
