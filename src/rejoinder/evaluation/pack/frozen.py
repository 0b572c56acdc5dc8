"""The start weights as an engine that scores: what judges ask, many requests in one pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from rejoinder.engine.base import (
    EngineInfo,
    GenerateRequest,
    ScoreRequest,
    ScoreResult,
    TokenChunk,
    VersionSource,
)
from rejoinder.engine.limits import check_score, unknown_version
from rejoinder.errors import InvalidRequest
from rejoinder.evaluation.pack.stacked import StackedModel, left_padded, padded_groups
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import BASE_VERSION

_WIDE = 16_384
"""Padded ids of one pass."""
_CHUNK = 1024
"""Positions whose logits exist at one time."""


class FrozenEngine:
    """Implements the scoring half of ``Engine``. Requests wait until ``flush``."""

    def __init__(self, model: StackedModel, tokenizer: ModelTokenizer, policy: str) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._policy = policy
        self._waiting: list[tuple[ScoreRequest, asyncio.Future[ScoreResult]]] = []
        self.asked = 0
        """Requests accepted so far."""

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    async def info(self) -> EngineInfo:
        """See ``Engine.info``."""
        return EngineInfo(
            name="pack",
            tokenizer_hash=self._tokenizer.hash,
            context_length=self._tokenizer.context_length,
            eos_ids=list(self._tokenizer.eos_ids),
            capabilities=["logprobs", "score", "candidates"],
            live={self._policy: BASE_VERSION},
            loaded={self._policy: [BASE_VERSION]},
        )

    def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        """See ``Engine.generate``; answers come from ``decoding.py``.

        Raises:
            InvalidRequest: always.
        """
        raise InvalidRequest(f"{request.request_id}: this engine scores and does not answer")

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """See ``Engine.score``.

        Raises:
            EngineError: the request cannot be scored here.
        """
        if request.policy != self._policy or request.version not in (None, BASE_VERSION):
            raise unknown_version(request.policy, request.version, [BASE_VERSION])
        if request.top_k:
            raise InvalidRequest(f"{request.request_id}: this engine gives no top-k")
        check_score(request, self._tokenizer.context_length, self._model.head.shape[1])
        future: asyncio.Future[ScoreResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        self.asked += 1
        return await future

    async def load(self, source: VersionSource, *, live: bool) -> None:
        """The start weights are all there is."""

    async def unload(self, policy: str, version: int) -> None:
        """Nothing can be unloaded."""

    async def close(self) -> None:
        """Nothing to release."""

    def flush(self) -> None:
        """Score all that waits."""
        waiting, self._waiting = self._waiting, []
        lengths = [len(request.ids) for request, _ in waiting]
        for group in padded_groups(lengths, _WIDE):
            members = [waiting[index] for index in group]
            for (_, future), result in zip(
                members, self._score([request for request, _ in members]), strict=True
            ):
                if not future.done():
                    future.set_result(result)

    @torch.inference_mode()
    def _score(self, requests: list[ScoreRequest]) -> list[ScoreResult]:
        ids, mask = (one[None] for one in left_padded([request.ids for request in requests]))
        longest = ids.shape[-1]
        device = self._model.device
        hidden = self._model.hidden(ids.to(device), mask.to(device))[0]
        asked = [
            _Position(row, longest - len(request.ids) + place - 1, request.temperature, wanted)
            for row, request in enumerate(requests)
            for place, wanted in _wanted(request)
        ]
        found = iter(self._read(asked, hidden))
        return [_result(request, found) for request in requests]

    def _read(self, asked: Sequence[_Position], hidden: Tensor) -> list[list[float]]:
        """Return the log-probabilities of the ids asked for: all in one transfer."""
        device, head = hidden.device, self._model.head[0]
        parts = list[Tensor]()
        for first in range(0, len(asked), _CHUNK):
            some = asked[first : first + _CHUNK]
            rows, places = (
                torch.tensor(which, device=device)
                for which in zip(*((one.row, one.place) for one in some), strict=True)
            )
            heat = torch.tensor([[one.temperature] for one in some], device=device)
            ids, _ = left_padded([one.ids for one in some])
            logits = hidden[rows, places] @ head.T / heat
            own = logits.gather(-1, ids.to(device)) - logits.logsumexp(-1, keepdim=True)
            parts.append(own)
        width = max((part.shape[-1] for part in parts), default=0)
        whole = [functional.pad(part, (width - part.shape[-1], 0)) for part in parts]
        values = torch.cat(whole).tolist() if whole else []
        return [row[width - len(one.ids) :] for row, one in zip(values, asked, strict=True)]


@dataclass(frozen=True, slots=True)
class _Position:
    """A place in a batch, and the ids whose log-probabilities there are asked for."""

    row: int
    place: int
    temperature: float
    ids: list[int]


def _wanted(request: ScoreRequest) -> Iterator[tuple[int, list[int]]]:
    """Yield each position of a request, with its own id, where it has one, and its candidates."""
    stop = len(request.ids) if request.stop is None else request.stop
    for at, place in enumerate(range(request.start, stop)):
        candidates = request.candidates[at] if request.candidates else []
        yield place, [*request.ids[place : place + 1], *candidates]


def _result(request: ScoreRequest, found: Iterator[list[float]]) -> ScoreResult:
    """Read the next values as the answer to a request, in the order of ``_wanted``."""
    values = [next(found) for _ in _wanted(request)]
    known = len(request.ids) - request.start
    return ScoreResult(
        logprobs=[own[0] for own in values[:known]],
        version=BASE_VERSION,
        candidates=[own[at < known :] for at, own in enumerate(values)]
        if request.candidates
        else [],
    )
