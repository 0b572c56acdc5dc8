"""Sequences in the engine: an answer being sampled, or given ids being scored."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rejoinder.chat.detokenizer import Detokenizer, IncrementalDetokenizer, StopMatcher
from rejoinder.engine.base import (
    ClientLogprob,
    GenerateRequest,
    ScoreRequest,
    ScoreResult,
    TokenChunk,
)
from rejoinder.engine.torch_engine.guide import Guide
from rejoinder.engine.torch_engine.slots import Ids, Origin, Slot
from rejoinder.engine.torch_engine.versions import Weights
from rejoinder.errors import EngineError
from rejoinder.types import FinishReason


class Sink(Protocol):
    """Where a sequence's results go, from the engine's thread."""

    def put(self, item: TokenChunk | ScoreResult | EngineError) -> None:
        """Take the next result; an error or a result that says so is the last."""
        ...


@dataclass(slots=True, eq=False)
class Sequence:
    """What both kinds share. Owned by the engine's thread, except ``cancelled``."""

    request: GenerateRequest | ScoreRequest
    sink: Sink
    ids: list[int]
    """All known tokens: given, then sampled."""
    given: Ids
    """The given tokens."""
    reusable: int
    """Given tokens that need not be computed if a slot has them: all whose logits do not matter."""
    order: int = 0
    """Order of arrival."""
    deadline: float = math.inf
    """On the monotonic clock."""
    weights: Weights | None = None
    slot: Slot | None = None
    cached: int = 0
    """Given tokens whose keys and values were reused."""
    cancelled: bool = False
    """Set by any thread; the next step drops the sequence."""
    done: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """Who goes first: by priority, then by arrival."""
        return self.request.priority, self.order

    @property
    def salt(self) -> str:
        """Whose tokens these are; scores are this system's own work."""
        return self.request.cache_salt if isinstance(self.request, GenerateRequest) else ""

    def origin(self, weights: Weights) -> Origin:
        """Return the origin of its rows where these weights compute them."""
        return Origin(weights.serial, self.salt)

    @property
    def computed(self) -> int:
        """Tokens whose keys and values are in the slot."""
        return 0 if self.slot is None else self.slot.length

    @property
    def goal(self) -> int:
        """Tokens that have to be computed to go on."""
        return len(self.ids)

    def wanted(self, begin: int, end: int) -> range:
        """Return which tokens of [begin, end) need logits."""
        return range(max(begin, len(self.ids) - 1), end)

    @property
    def follows_live(self) -> bool:
        """Whether an update changes the weights of this sequence under way."""
        return False

    @property
    def rests(self) -> bool:
        """Whether steps go on without this sequence for a while."""
        return False


def _deadline(seconds: float | None) -> float:
    return math.inf if seconds is None else time.monotonic() + seconds


@dataclass(slots=True, eq=False)
class Generation(Sequence):
    """An answer being sampled."""

    request: GenerateRequest
    most: int = 0
    """Tokens to sample at most: ``max_tokens`` or what the context leaves."""
    uniform: random.Random = field(default_factory=random.Random)
    counts: dict[int, int] = field(default_factory=dict)
    """How often each id was sampled; kept only where penalties need it."""
    detokenizer: IncrementalDetokenizer | None = None
    matcher: StopMatcher | None = None
    restarted: bool = False
    """Whether an update has made the prompt start again."""
    guide: Guide | None = None
    """What holds the answer to its constraint; None where it is free."""
    late: bool = False
    """Whether the last step had to do without the guide's mask."""

    @classmethod
    def start(
        cls,
        request: GenerateRequest,
        sink: Sink,
        detokenizer: Detokenizer,
        context: int,
        guide: Guide | None = None,
    ) -> Generation:
        """Begin an answer."""
        prompt, sampling = request.prompt_ids, request.sampling
        return cls(
            request=request,
            sink=sink,
            ids=list(prompt),
            given=np.asarray(prompt, np.int32),
            reusable=len(prompt) - 1,
            deadline=_deadline(request.deadline_s),
            most=min(sampling.max_tokens, context - len(prompt)),
            uniform=random.Random(sampling.seed),  # noqa: S311 - sampling, no secret
            detokenizer=detokenizer.stream() if sampling.stop else None,
            matcher=StopMatcher(sampling.stop) if sampling.stop else None,
            guide=guide,
        )

    @property
    def sampled(self) -> int:
        """Tokens sampled so far."""
        return len(self.ids) - len(self.given)

    @property
    def follows_live(self) -> bool:
        """Whether an update changes the weights of this sequence under way."""
        return self.request.version is None

    @property
    def rests(self) -> bool:
        """Whether steps go on without this answer: its guide takes long to say what may follow."""
        return self.late and self.guide is not None and self.guide.pending

    def put_off(self) -> None:
        """Let a later step compute the last token again, and draw from it then."""
        assert self.slot is not None
        self.slot.drop_last()
        self.late = True

    def accept(
        self, id_: int, logprob: float, client: ClientLogprob | None, eos_ids: frozenset[int]
    ) -> TokenChunk:
        """Append a sampled token; return what the caller sees of it."""
        assert self.weights is not None
        self.ids.append(id_)
        sampling = self.request.sampling
        if sampling.frequency_penalty or sampling.presence_penalty:
            self.counts[id_] = self.counts.get(id_, 0) + 1
        finish, stop_string = self._finish(id_, eos_ids)
        self.done = finish is not None
        self.late = False
        if self.guide is not None and not self.done and not self.guide.advance(id_):
            self.guide = None
        return TokenChunk(
            ids=[id_],
            logprobs=[logprob],
            version=self.weights.version,
            client=None if client is None else [client],
            finish_reason=finish,
            stop_string=stop_string,
            cached_tokens=self.cached if self.sampled == 1 else 0,
        )

    def _finish(self, id_: int, eos_ids: frozenset[int]) -> tuple[FinishReason | None, str | None]:
        if id_ in eos_ids:
            return FinishReason.STOP, None
        if self.detokenizer is not None and self.matcher is not None:
            self.matcher.feed(self.detokenizer.feed((id_,)))
            if self.matcher.matched is not None:
                return FinishReason.STOP, self.matcher.matched
        return (FinishReason.LENGTH if self.sampled >= self.most else None), None


@dataclass(slots=True, eq=False)
class Scoring(Sequence):
    """Given ids being scored; one version computes all of it."""

    request: ScoreRequest
    stop: int = 0
    logprobs: list[float] = field(default_factory=list)
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    candidates: list[list[float]] = field(default_factory=list)

    @classmethod
    def start(cls, request: ScoreRequest, sink: Sink) -> Scoring:
        """Begin a scoring."""
        return cls(
            request=request,
            sink=sink,
            ids=request.ids,
            given=np.asarray(request.ids, np.int32),
            reusable=request.start - 1,
            deadline=_deadline(request.deadline_s),
            stop=len(request.ids) if request.stop is None else request.stop,
        )

    @property
    def goal(self) -> int:
        """Tokens that have to be computed: the last position's logits come from the one before."""
        return self.stop - 1

    def wanted(self, begin: int, end: int) -> range:
        """Return which tokens of [begin, end) need logits: token p gives position p + 1."""
        return range(max(begin, self.request.start - 1), min(end, self.stop - 1))

    def result(self) -> ScoreResult:
        """Return what has been collected over all positions."""
        assert self.weights is not None
        return ScoreResult(
            self.logprobs, self.weights.version, self.top, self.candidates, self.cached
        )
