"""What roles write into the journal and read from it; the calls are in ``base.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rejoinder.processes import process_space
from rejoinder.types import (
    BASE_VERSION,
    Fate,
    FinishReason,
    Json,
    Judgement,
    Message,
    Sampling,
    Scope,
    TurnType,
    VersionRun,
    VersionState,
    Vote,
    WeightsKind,
)

# --- serving ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A request that was accepted; queued before the first byte and not waited for."""

    turn_id: str
    session_id: str
    external_session: str | None
    """What the client called its session; None where it was derived."""
    scope: Scope
    policy: str
    turn_type: TurnType
    parent_id: str | None
    """The turn whose answer this request replies to."""
    link_reason: str
    """Why it was linked or not, for people."""
    completion_id: str
    choice: int
    """Index among the ``n`` answers; siblings share ``completion_id``."""
    created_at: float
    owner: str
    """The gateway process that is serving it; lets a restart abort what it left open."""
    messages: Sequence[Message]
    """The whole normalised request. Stored by content hash; shared history is stored once."""
    tools: str | None
    """JSON of the tools, if any, with keys in the order in which they were rendered."""
    prompt_ids: Sequence[int]
    """[P] exactly what the engine gets."""
    request_chain: bytes
    """Hash of the request's history, for recognising retries."""
    sampling: Sampling
    fate: Fate | None = None
    """Known already at the start: ``side`` or ``sampling_not_trainable``."""
    group: str | None = None
    trajectory: str | None = None
    step_index: int | None = None
    trace: bytes | None = None
    """[16] the client's W3C trace id; a hint that requests belong together."""
    options: str | None = None
    """JSON of further arguments of the chat template, if any, as they were rendered with."""
    link: Json = field(default_factory=dict)
    """Which rules linked it, and from where its session and type come; see ``explain_turn``."""


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """What a client may ask for again by the id of its completion."""

    body: bytes
    """The JSON object, as the client was sent it."""
    own_messages: int
    """Leading messages of the request that were its own instructions: a later request that goes
    on from this one brings others."""
    common: Sequence[bytes] = ()
    """Parts of the body that others of this client are likely to have, too: they are kept once."""


@dataclass(frozen=True, slots=True)
class EarlierResponse:
    """The conversation that a later request goes on from."""

    turn_id: str
    messages: tuple[Message, ...]
    """All that was said, the answer included; without the response's own instructions."""


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """An answer that is complete. Durable before its last byte leaves (design, rule 3)."""

    turn_id: str
    answered_at: float
    answer_ids: Sequence[int]
    """[T] sampled ids."""
    logprobs: Sequence[float]
    """[T] behaviour log-probabilities; same length or the turn ends as ``missing_logprobs``."""
    versions: Sequence[VersionRun]
    finish_reason: FinishReason
    message: Message
    """The answer as the client saw it."""
    answer_chain: bytes
    """Hash of history plus answer: what the next request will be recognised by."""
    first_token_s: float | None = None
    total_s: float | None = None
    response: KeptResponse | None = None
    """Where the client asked that it be kept."""


@dataclass(frozen=True, slots=True)
class AbortedTurn:
    """An answer that broke off; whatever was sampled is kept, and never trains."""

    turn_id: str
    fate: Fate
    answer_ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    versions: Sequence[VersionRun] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class NextState:
    """What followed an answer. Written when the next request *arrives* (design, section 4)."""

    turn_id: str
    """The answer it follows."""
    child_id: str
    """The turn whose request brought it."""
    messages: Sequence[Message]
    """Every message after the answer."""
    digest: bytes
    """Hash of ``messages``; (turn, digest, judge fingerprint) is a verdict's key."""


@dataclass(frozen=True, slots=True)
class FeedbackResult:
    """What became of explicit feedback."""

    outcome: str
    """``accepted``, ``late_feedback``, ``never_trains`` or ``unknown``."""
    turn_id: str | None = None


# --- judging ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """One claimed judging job, with all a judge may see."""

    job_id: str
    fence: int
    """Lease number: a commit under an older one is refused."""
    turn_id: str
    tenant: str
    policy: str
    attempt: int
    """1 for the first claim."""
    context: tuple[Message, ...]
    """The request's messages, oldest first."""
    answer: Message
    next_state: tuple[Message, ...]
    digest: bytes
    unreadable: str | None = None
    """Why the conversation cannot be read; its parts are then empty, and nothing can be judged."""
    feedback: int | None = None
    """A person's own score, which leaves nothing to a verdict; the reply may still hold a hint."""


@dataclass(frozen=True, slots=True)
class HintMaker:
    """Which hint judge drew a hint; kept with it."""

    fingerprint: str
    """Changes whenever the same input could give other hints: rules, prompt, model, words."""
    kind: str
    """As in ``hints.kind``."""
    model: str | None
    """The model that was asked and where; None where none was."""
    prompt: str
    """Hash of what decides beside the model: the prompt, or the rules and their words."""


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """The learning signal a judgement gives; None in ``commit_judgement`` means no sample."""

    reward: float | None
    hints: tuple[str, ...] = ()
    hinted_by: HintMaker | None = None
    """Set by the judging loop where there are hints; algorithms leave it."""


FEEDBACK = "feedback"
"""Stands for the judge in the verdict's key: a later score replaces an earlier one."""


def judgement_of(score: int) -> Judgement:
    """Return a person's own score as an algorithm is asked about it."""
    return Judgement(score, (Vote(score),), FEEDBACK)


# --- training --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrainSample:
    """What the trainer learns from: one turn with its behaviour and its signal."""

    sample_id: str
    turn_id: str
    session_id: str
    trajectory: str | None
    prompt_ids: list[int]
    answer_ids: list[int]
    logprobs: list[float]
    """[T] behaviour log-probabilities, finite, one per answer id."""
    versions: tuple[VersionRun, ...]
    temperature: float
    reward: float | None
    hints: tuple[str, ...]
    created_at: float
    messages: tuple[Message, ...] = ()
    """The conversation that the prompt was made from; only of samples with hints."""
    tools: str | None = None
    """JSON of the request's tools, likewise."""
    options: str | None = None
    """JSON of the further template arguments, likewise."""

    @property
    def oldest_version(self) -> int:
        """The oldest version that sampled a token of the answer."""
        return min(run.version for run in self.versions)


@dataclass(frozen=True, slots=True)
class Lineage:
    """The chain of versions one training run extends."""

    lineage_id: str
    policy: str
    parent_id: str | None
    from_version: int
    """The version it starts from; 0 for the first."""
    head_version: int
    """The newest version in it that is not orphaned."""
    next_step: int
    """1 for the first step; steps of orphaned versions are counted again."""
    next_version: int = BASE_VERSION + 1
    """The number the next version must have: numbers of a policy are never used twice."""


@dataclass(frozen=True, slots=True)
class RollbackCause:
    """Why the trainer rolls back by itself."""

    lineage_id: str
    """The lineage in which the policy has fallen."""
    reason: str
    lease: str
    """Of the trainer, with its fence: who has lost it rolls nothing back."""
    fence: int


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """One version of a policy in the registry."""

    policy: str
    version: int
    uri: str
    kind: WeightsKind
    base_uri: str
    parent: int | None
    lineage_id: str | None
    step: int | None
    state: VersionState
    created_at: float
    checkpoint_uri: str | None = None
    """Optimizer and RNG of the step, where one was kept."""
    pinned: bool = False
    files: bool = True
    """False once retention has deleted the weights."""
    metrics: Json = field(default_factory=dict)


def line_of(parents: Mapping[int, int | None], version: int) -> list[int]:
    """Return a version and all that it comes from, newest first.

    Args:
        parents: of each version of a policy the one that its step began with.
        version: where to begin.
    """
    line: list[int] = []
    current: int | None = version
    while current is not None:
        line.append(current)
        current = parents[current]
    return line


@dataclass(frozen=True, slots=True)
class StepSample:
    """A sample as a step used it."""

    sample_id: str
    reward: float | None
    """What it was trained with; if a person has scored it otherwise since, the step is refused."""
    untrained: str | None = None
    """Why it changed no weights although it is used up: it gave no signal, or the step was
    skipped."""
    hints: tuple[str, ...] = ()
    """What it was trained with; if a reply has brought others since, the step is refused."""


@dataclass(frozen=True, slots=True)
class StepCommit:
    """One training step, committed in one fenced transaction after its files are durable."""

    lineage_id: str
    step: int
    version: PolicyVersion
    samples: Sequence[StepSample]
    metrics: Json
    started_at: float
    finished_at: float


# --- watching --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RoleReport:
    """A role's heartbeat: what it does and its last error."""

    role: str
    """``gateway``, ``engine``, ``judge`` or ``trainer``."""
    instance: str
    pid: int
    state: str
    """A short word: ``loading``, ``ready``, ``training``…"""
    detail: Json = field(default_factory=dict)
    last_error: str | None = None
    last_error_at: float | None = None
    started_at: float = 0.0
    seen_at: float = 0.0
    pid_space: str = field(default_factory=process_space)
    """Where ``pid`` means this process; see ``processes.py``. Empty: not known."""
