"""The start weights as an engine that scores: what judges ask, many requests in one pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import torch
from torch import Tensor

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
        return [
            self._read(request, hidden[row, longest - len(request.ids) :])
            for row, request in enumerate(requests)
        ]

    def _read(self, request: ScoreRequest, hidden: Tensor) -> ScoreResult:
        """Return what a request asked, from the hidden states [P, H] of its ids."""
        stop = len(request.ids) if request.stop is None else request.stop
        states = hidden[request.start - 1 : stop - 1]
        logprobs = (states @ self._model.head[0].T / request.temperature).log_softmax(-1)
        own = torch.tensor(request.ids[request.start : stop], device=hidden.device)
        rows = request.candidates or []
        return ScoreResult(
            logprobs=logprobs[: len(own)].gather(-1, own[:, None])[:, 0].tolist(),
            version=BASE_VERSION,
            candidates=[logprobs[at, row].tolist() for at, row in enumerate(rows)],
        )
