"""The engine seam: what serving, judging and teaching need from a model server.

An engine takes token ids and gives token ids: rendering and tokenising are the caller's. It holds
several versions of several policies side by side and switches a policy's *live* version between
two decoding steps, while requests are in flight. Cancel a generation by closing its iterator.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from rejoinder.types import Fields, FinishReason, Sampling, WeightsKind


@dataclass(frozen=True, slots=True)
class Form:
    """JSON that fits a schema, with given text around it."""

    schema: str
    """A JSON schema, as JSON text; ``limits.check_schemas`` says of what length."""
    lenient: bool = False
    """Leave out what of the schema cannot be enforced, instead of refusing it."""
    before: str = ""
    """What stands before the JSON. A text that the tokenizer has a token for is that token alone,
    in all texts of a form: a family's reader takes nothing else for its marker."""
    after: str = ""
    """What stands after it."""
    subject: str = ""
    """Whose schema it is, as a refusal has to call it; empty where there is one alone."""
    again: str | None = None
    """What stands before the JSON, in the place of ``before``, where it follows another form of
    the same answer; None: it follows none."""
    fields: Fields | None = None
    """How the object is written where that is not as JSON."""

    @property
    def loosens(self) -> bool:
        """Whether any object will do where the schema cannot be enforced at all.

        It is that of a tool, which whoever asks seldom wrote, and a call is better than none.
        """
        return self.lenient and bool(self.subject)


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the text of an answer has to be: a form, perhaps others after it, and ``end``."""

    forms: list[Form]
    """One of these comes first; there is at least one. Those with ``again`` may follow, in any
    order and number."""
    unless: list[int] = field(default_factory=list)
    """Ids that free the whole answer where one of them comes first, as those that open a call."""
    end: str = ""
    """What stands behind the last form. Then the answer ends."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One answer to sample. Callers fan out ``n`` answers as ``n`` requests with one prompt."""

    request_id: str
    prompt_ids: list[int]
    """[P] at least one id."""
    sampling: Sampling
    policy: str
    version: int | None = None
    """None follows the live version, also across an update; a number pins one."""
    top_logprobs: int | None = None
    """None: no client logprobs. k >= 0: the sampled token's plain logprob and the k best ids."""
    deadline_s: float | None = None
    """Seconds from arrival until the engine gives up with ``EngineTimeout``."""
    priority: int = 0
    """Lower goes first: 0 people, 10 judges, 15 teachers, 20 evaluation."""
    caller: str = ""
    """Who asks. Of those who wait, the caller with the fewest answers under way is next."""
    cache_salt: str = ""
    """Whose prompt it is: what was computed of one is reused for requests with the same salt alone,
    so that nobody learns from ``cached_tokens``, or from time, what others have asked. Empty: this
    system's own work, as all scores are."""
    constraint: Constraint | None = None
    """What the answer has to be; ``ConstraintRefused`` where that is impossible. Tokens are drawn
    from those that may follow, and an answer that ``max_tokens`` cuts is not whole."""
    whole: bool = False
    """Nobody reads along: tokens behind the first may come many at a time."""


@dataclass(frozen=True, slots=True)
class ClientLogprob:
    """What an API client sees for one token: untempered, never the behaviour logprob."""

    logprob: float
    top: list[tuple[int, float]] = field(default_factory=list)
    """(id, logprob) of the most likely tokens, best first."""


class TokenChunk(msgspec.Struct, frozen=True, gc=False):
    """Some successive tokens of an answer; the last chunk carries the finish reason.

    The ids of all chunks, joined, are exactly what the model sampled: a sampled end token is in
    them, nothing else is. Text of a matched stop string is sampled text and stays in the ids.

    There may be one per token, so it is read faster than a dataclass is, and no garbage collector
    need look at it.
    """

    ids: list[int]
    """[n] n >= 0; empty only in a last chunk."""
    logprobs: list[float]
    """[n] behaviour log-probabilities: at the request's temperature, under the truncated or
    constrained distribution where one was asked for."""
    version: int
    """Sampled all of ``ids``."""
    client: list[ClientLogprob] | None = None
    """[n] where asked for."""
    finish_reason: FinishReason | None = None
    stop_string: str | None = None
    """The stop string that ended the answer, if one did."""
    cached_tokens: int = 0
    """First chunk only: prompt tokens whose KV was reused."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Log-probabilities of given ids: the judge's and teacher's call.

    Position i means the distribution of token i given ``ids[:i]``; 1 <= start <= i < stop <=
    len(ids) + 1. Position len(ids) is the next token, which has candidates but no own logprob.
    """

    request_id: str
    ids: list[int]
    policy: str
    version: int | None = None
    start: int = 1
    stop: int | None = None
    """None: len(ids), i.e. all given ids."""
    temperature: float = 1.0
    top_k: int = 0
    """Own top-k at each position."""
    candidates: list[list[int]] | None = None
    """[stop - start][k] ids to score at each position; rows may differ in length."""
    deadline_s: float | None = None
    priority: int = 10


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """Answer to a ``ScoreRequest``; every list runs over positions start..stop-1."""

    logprobs: list[float]
    """[min(stop, len(ids)) - start] of the ids themselves; no filler for a missing value."""
    version: int
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    candidates: list[list[float]] = field(default_factory=list)
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class VersionSource:
    """Where a version's weights are. ``base_uri`` is the model a LoRA adapter extends."""

    policy: str
    version: int
    uri: str
    kind: WeightsKind
    base_uri: str


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine is and serves now."""

    name: str
    tokenizer_hash: str
    """Hash of vocabulary and special tokens; must equal the policy tokenizer's."""
    context_length: int
    eos_ids: list[int]
    capabilities: list[str]
    """Of: logprobs, score, candidates, stop_strings, multi_version, json_schema. An engine without
    the last one refuses every constraint; one that has it takes any."""
    live: dict[str, int]
    """Live version of each policy."""
    loaded: dict[str, list[int]]
    running: int = 0
    waiting: int = 0
    last_error: str | None = None


class Engine(Protocol):
    """See the module's text. Every method may raise an ``EngineError``."""

    async def info(self) -> EngineInfo:
        """Describe the engine; also the health probe."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        """Stream an answer; ``aclose()`` cancels it and frees its slot at the next step."""
        ...

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Score given ids in one forward pass, without sampling."""
        ...

    async def load(self, source: VersionSource, *, live: bool) -> None:
        """Load a version in the background; with ``live`` make it the live one between two steps.

        Requests in flight that follow the live version go on with the new weights and keep
        their KV. Returns when the switch has happened. Loading a loaded version is no error.
        """
        ...

    async def unload(self, policy: str, version: int) -> None:
        """Free a version that is neither live nor the start weights, which judges always need.

        Others stay, and unknown versions are no error.
        """
        ...

    async def close(self) -> None:
        """Release what this object holds; calls in flight end with ``EngineUnavailable``."""
        ...
