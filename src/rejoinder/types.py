"""The vocabulary of the system as frozen types. Knows nothing of the rest of the package.

Token ids are plain ``int``; a log-probability is a natural logarithm in ``float``. Times are Unix
seconds in UTC. Names follow the glossary in ``docs/architecture.md``.
"""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

BASE_VERSION = 0
"""The version number of a policy's start weights."""


_id_lock = threading.Lock()
_last_id = 0
_id_noise = random.Random()  # noqa: S311 - ids are no secrets; the system's own noise costs a call
os.register_at_fork(after_in_child=_id_noise.seed)


def new_id() -> str:
    """Return a 32-digit hexadecimal id that sorts by creation time (milliseconds, then random).

    Ids of one process sort in the order they were made, also within a millisecond.
    """
    global _last_id
    noise = _id_noise.getrandbits(80)
    made = (time.time_ns() // 1_000_000 << 80) | noise
    with _id_lock:
        if made >> 80 <= _last_id >> 80:  # the same millisecond, or a clock set back
            made = _last_id + 1 + (noise & 0xFFFFFFFF)
        _last_id = made
    return f"{made:032x}"


class TurnType(StrEnum):
    """Whether a turn may train."""

    MAIN = "main"
    """May train."""
    SIDE = "side"
    """Served only: heartbeats, title generation, measuring."""


class TurnState(StrEnum):
    """Where a turn stands. ``consumed`` is not a state: it is a row per lineage (rule 3)."""

    OPEN = "open"
    """Accepted; the engine may be sampling."""
    ABORTED = "aborted"
    """Ended without a whole answer: client gone, engine failed, or process killed."""
    WAITING = "waiting"
    """Answered; its next state has not arrived."""
    JUDGING = "judging"
    """Its next state has arrived; no judgement has been committed."""
    NO_VERDICT = "no_verdict"
    """Has no verdict: the judge failed, or, where hints alone teach, none was asked. Never the same
    as a neutral verdict (rule 5)."""
    JUDGED = "judged"
    """Has a verdict, and the algorithm did not want it as a sample."""
    SAMPLED = "sampled"
    """Became a sample."""
    ENDED = "ended"
    """Will not become a sample; ``fate`` says why."""


class Fate(StrEnum):
    """Why a turn did not become a sample, or a sample did not train (rule 4: no silent drop)."""

    SIDE = "side"
    CLIENT_GONE = "client_gone"
    ENGINE_FAILED = "engine_failed"
    REFUSED = "refused"
    """The engine could not do what the client asked for, such as keep to its schema."""
    TIMED_OUT = "timed_out"
    PROCESS_KILLED = "process_killed"
    SUPERSEDED = "superseded"
    NO_NEXT_STATE = "no_next_state"
    AMBIGUOUS_PARENT = "ambiguous_parent"
    SAMPLING_NOT_TRAINABLE = "sampling_not_trainable"
    MISSING_LOGPROBS = "missing_logprobs"
    EMPTY_ANSWER = "empty_answer"
    NEUTRAL = "neutral"
    NO_QUORUM = "no_quorum"
    JUDGE_FAILED = "judge_failed"
    JUDGE_UNSURE = "judge_unsure"
    STALE = "stale"
    ORPHANED = "orphaned"
    """A restart of the trainer took back the version that sampled it, and its steps have not been
    taken again up to there."""
    ROLLED_BACK = "rolled_back"
    """The policy was rolled back from the version that sampled it, by a person and too many steps
    lie between, or by the trainer."""
    DELETED = "deleted"
    """The conversation that its reply came in was deleted by a person."""
    LIMIT = "limit"
    DUPLICATE = "duplicate"
    LATE_FEEDBACK = "late_feedback"
    NO_HINT = "no_hint"
    """The reply does not say how the answer should have been, and only hints were to teach."""
    HINT_FAILED = "hint_failed"
    """The hint judge failed, and nothing else was to teach."""
    OTHER_ALGORITHM = "other_algorithm"
    """The sample was made for another algorithm, and the one that trains now learns nothing from
    it."""
    ALL_ALIKE = "all_alike"
    """Verdicts were to be compared with each other, and all of the step's said the same."""
    NO_SIGNAL = "no_signal"


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    """The model sampled an end token, or a stop string appeared."""
    LENGTH = "length"
    """``max_tokens`` or the context was used up."""


class VersionState(StrEnum):
    """Where a policy version stands."""

    CANDIDATE = "candidate"
    LIVE = "live"
    RETIRED = "retired"
    REJECTED = "rejected"
    ORPHANED = "orphaned"
    """Its optimizer state was lost in a restart; it is no longer in the lineage."""


class WeightsKind(StrEnum):
    """What the files behind a version hold."""

    FULL = "full"
    """A Hugging Face model directory."""
    LORA = "lora"
    """A PEFT adapter directory; its ``base_model_name_or_path`` is informative only."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an answer is sampled. Units: tokens; temperature 0 means greedy."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all tokens."""
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    constrained: bool = False
    """The answer had to fit a format: its tokens are drawn from those that the format allows."""

    def not_trainable_because(self) -> str | None:
        """Return which setting makes the answer served-only by default, or None."""
        if self.temperature < 0.05:
            return "temperature below 0.05"
        if self.top_p < 1.0:
            return "top_p"
        if self.top_k > 0:
            return "top_k"
        if self.min_p > 0.0:
            return "min_p"
        if self.frequency_penalty or self.presence_penalty:
            return "penalty"
        if self.logit_bias:
            return "logit_bias"
        if self.constrained:
            return "an answer held to a form or to a function's arguments (gateway.hold_calls)"
        return None


@dataclass(frozen=True, slots=True)
class VersionRun:
    """``count`` successive answer tokens that ``version`` sampled."""

    version: int
    count: int


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model asked for; ``arguments`` is the JSON text as it was written."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One normalised chat message: content flattened to text, ``developer`` made ``system``.

    Lists of text parts are joined without a separator; null becomes the empty string. The same
    normalised messages are rendered, hashed, stored and judged, so that no two places disagree.
    """

    role: str
    """``system``, ``user``, ``assistant`` or ``tool``."""
    content: str
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose turns may be linked with each other: candidates for a parent share all three."""

    tenant: str
    key: str
    """Name of the API key, never the key itself; ``local`` where the gateway has no keys."""
    user: str = ""
    """The request's ``user`` field; it never names a session."""


@dataclass(frozen=True, slots=True)
class ChainMatch:
    """An earlier turn whose history, answer included, is a prefix of a request's history."""

    turn_id: str
    session_id: str
    external_session: str | None
    chain: bytes
    """The matched hash; the caller knows which prefix it stands for."""
    superseded: bool
    trace: bytes | None = None
    """The trace under which the turn was asked for, where its client sent one."""
    side: bool = False
    """A side turn, which nothing that follows it can teach."""


@dataclass(frozen=True, slots=True)
class SameRequest:
    """An earlier turn that answered exactly the same history (a retry or a regeneration)."""

    turn_id: str
    session_id: str
    parent_id: str | None
    created_at: float
    open: bool
    trace: bytes | None = None
    """As in ``ChainMatch``."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One judge call: a score, or the reason there is none."""

    score: int | None
    """-1, 0, +1, or None for a failed vote."""
    reason: str = ""
    """Why there is no score, or the judge's own short rationale. Untrusted text."""
    value: float | None = None
    """The judge's raw figure where it has one (a log-odds), for calibration."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge says of one turn: a score in {-1, 0, +1}, or no verdict."""

    score: int | None
    """None means *no verdict*; never replaced by 0."""
    votes: tuple[Vote, ...]
    fingerprint: str
    """Of judge, prompt and model: verdicts are unique per (turn, next state, fingerprint)."""
    why: Fate | None = None
    """Set exactly when ``score`` is None."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Fields:
    """How a family of models writes the properties of an object where it writes no JSON.

    A value is plain text where ``is_text`` says so of its schema. Any other is JSON, and text
    that is no JSON is a string.
    """

    before: str
    """What stands before a property's name."""
    between: str
    """What stands between its name and its value."""
    after: str
    """What stands after its value."""
    name: str
    """A regular expression of all names that can be written."""
    never: list[str]
    """What no plain text may have in it, for it would be taken for something else; the beginning
    of ``after`` that ends a value is among them."""

    @staticmethod
    def is_text(schema: object) -> bool:
        """Whether a value with this schema is a string as it stands, whatever it looks like."""
        return isinstance(schema, dict) and schema.get("type") in ("string", ["string"])
