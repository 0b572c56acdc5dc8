"""An engine that answers with fixed text: for tests and gateway benchmarks, never a claim."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator
from pathlib import Path

from rejoinder.config import ScriptedEngineConfig
from rejoinder.engine.base import (
    ClientLogprob,
    EngineInfo,
    GenerateRequest,
    ScoreRequest,
    ScoreResult,
    TokenChunk,
    VersionSource,
)
from rejoinder.engine.limits import (
    cannot_constrain,
    check_generate,
    check_score,
    unknown_version,
)
from rejoinder.errors import EngineTimeout, EngineUnavailable
from rejoinder.models.tokenizer import load_tokenizer
from rejoinder.types import BASE_VERSION, FinishReason

_TICK_S = 0.01
"""Longest wait between two chunks of a rate-limited answer."""
_TOKENS_PER_TURN = 16
"""Tokens at once before other tasks of the event loop get their turn."""


class ScriptedEngine:
    """Every answer is ``config.answer`` and an end token; logprobs are plausible and fixed."""

    def __init__(self, model: Path, policy: str, config: ScriptedEngineConfig) -> None:
        tokenizer = load_tokenizer(model)
        self._config = config
        self._vocab_size = tokenizer.vocab_size
        self._ids = [*tokenizer.encode(config.answer), tokenizer.eos_ids[0]]
        noise = random.Random(0)  # noqa: S311 - figures for tests, no secret
        self._logprobs = [math.log(noise.uniform(0.2, 1.0)) for _ in self._ids]
        self._sources: dict[tuple[str, int], VersionSource | None] = {(policy, BASE_VERSION): None}
        self._live = {policy: BASE_VERSION}
        self._running = 0
        self._closed = False
        self._tokenizer_hash = tokenizer.hash
        self._eos_ids = list(tokenizer.eos_ids)

    async def info(self) -> EngineInfo:
        """See ``Engine.info``."""
        return EngineInfo(
            name="scripted",
            tokenizer_hash=self._tokenizer_hash,
            context_length=self._config.context_length,
            eos_ids=self._eos_ids,
            capabilities=["logprobs", "score", "candidates", "multi_version"],
            live=dict(self._live),
            loaded=self._loaded(),
            running=self._running,
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        """See ``Engine.generate``."""
        self._check_open()
        check_generate(request, self._config.context_length, self._vocab_size)
        if request.constraint is not None:
            raise cannot_constrain("scripted")
        self._resolve(request.policy, request.version)
        room = self._config.context_length - len(request.prompt_ids)
        count = min(len(self._ids), request.sampling.max_tokens, room)
        deadline = math.inf if request.deadline_s is None else _now() + request.deadline_s
        self._running += 1
        try:
            async for start, end in _paced(count, self._config.tokens_per_second):
                self._check_open()
                if _now() >= deadline:
                    raise EngineTimeout(f"no whole answer within {request.deadline_s} s")
                yield self._chunk(request, start, end, count)
        finally:
            self._running -= 1

    def _chunk(self, request: GenerateRequest, start: int, end: int, count: int) -> TokenChunk:
        finish: FinishReason | None = None
        if end == count:
            finish = FinishReason.STOP if count == len(self._ids) else FinishReason.LENGTH
        ids, logprobs = self._ids[start:end], self._logprobs[start:end]
        client = None
        if request.top_logprobs is not None:
            kept = slice(0, min(request.top_logprobs, 1))
            client = [
                ClientLogprob(logprob, [(id_, logprob)][kept])
                for id_, logprob in zip(ids, logprobs, strict=True)
            ]
        version = self._resolve(request.policy, request.version)
        return TokenChunk(ids, logprobs, version, client, finish)

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """See ``Engine.score``; the logprob of an id depends on nothing but the id."""
        self._check_open()
        check_score(request, self._config.context_length, self._vocab_size)
        version = self._resolve(request.policy, request.version)
        stop = len(request.ids) if request.stop is None else request.stop
        top = [(id_, _logprob_of(id_)) for id_ in range(min(request.top_k, self._vocab_size))]
        top.sort(key=lambda pair: -pair[1])
        return ScoreResult(
            logprobs=[_logprob_of(id_) for id_ in request.ids[request.start : stop]],
            version=version,
            top=[list(top) for _ in range(request.start, stop)] if request.top_k else [],
            candidates=[[_logprob_of(id_) for id_ in row] for row in request.candidates or []],
        )

    async def load(self, source: VersionSource, *, live: bool) -> None:
        """See ``Engine.load``; no file is read."""
        self._check_open()
        self._sources[source.policy, source.version] = source
        if live:
            self._live[source.policy] = source.version

    async def unload(self, policy: str, version: int) -> None:
        """See ``Engine.unload``."""
        if version not in (self._live.get(policy), BASE_VERSION):
            self._sources.pop((policy, version), None)

    async def close(self) -> None:
        """See ``Engine.close``."""
        self._closed = True

    def _loaded(self) -> dict[str, list[int]]:
        loaded: dict[str, list[int]] = {}
        for policy, version in sorted(self._sources):
            loaded.setdefault(policy, []).append(version)
        return loaded

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnavailable("the engine is closed")

    def _resolve(self, policy: str, version: int | None) -> int:
        found = self._live.get(policy) if version is None else version
        if found is None or (policy, found) not in self._sources:
            raise unknown_version(policy, version, self._loaded().get(policy, ()))
        return found


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _paced(
    count: int, tokens_per_second: float | None
) -> AsyncGenerator[tuple[int, int], None]:
    """Yield ranges [start, end) of ``count`` tokens, one by one, when their time has come."""
    if tokens_per_second is None:
        for start in range(count):
            if start % _TOKENS_PER_TURN == _TOKENS_PER_TURN - 1:
                await asyncio.sleep(0)
            yield start, start + 1
        return
    begin, start = _now(), 0
    while start < count:
        due = begin + (start + 1) / tokens_per_second
        await asyncio.sleep(max(due - _now(), min(_TICK_S, 1 / tokens_per_second)))
        end = min(count, max(start + 1, int((_now() - begin) * tokens_per_second)))
        yield start, end
        start = end


def _logprob_of(id_: int) -> float:
    """Return a fixed value in [-6, -1]."""
    return -1.0 - (id_ * 2654435761 % 4096) / 819.2
