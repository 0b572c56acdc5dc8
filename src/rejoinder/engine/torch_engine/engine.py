"""The in-process PyTorch engine: the ``Engine`` protocol on top of the engine's thread."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import structlog
import torch

from rejoinder.chat.detokenizer import Detokenizer
from rejoinder.config import TorchEngineConfig
from rejoinder.engine.base import (
    EngineInfo,
    GenerateRequest,
    ScoreRequest,
    ScoreResult,
    TokenChunk,
    VersionSource,
)
from rejoinder.engine.limits import check_generate, check_score
from rejoinder.engine.torch_engine.build import Builder, cache_shape, read_config
from rejoinder.engine.torch_engine.delivery import Mailbox
from rejoinder.engine.torch_engine.grammars import Grammars
from rejoinder.engine.torch_engine.kv_cache import KVCache, context_that_fits
from rejoinder.engine.torch_engine.loader import Loader
from rejoinder.engine.torch_engine.scheduler import Scheduler
from rejoinder.engine.torch_engine.sequence import Generation, Scoring
from rejoinder.engine.torch_engine.slots import SlotPool
from rejoinder.engine.torch_engine.worker import Worker
from rejoinder.errors import EngineError
from rejoinder.models.tokenizer import load_tokenizer

log = structlog.get_logger(__name__)

_CAPABILITIES = ["logprobs", "score", "candidates", "stop_strings", "multi_version"]


class TorchEngine:
    """Continuous batching over slots; see ``docs/architecture.md``.

    Holds no weights at first: ``load`` the start weights as version 0. All versions must have the
    layers of ``model``, whose tokenizer and context it uses.
    """

    def __init__(
        self, model: Path, config: TorchEngineConfig, dtype: torch.dtype, device: torch.device
    ) -> None:
        tokenizer = load_tokenizer(model)
        model_config = read_config(model)
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer.tokenizer)
        self._vocab_size: int = model_config.vocab_size
        self._grammars = Grammars(tokenizer, self._vocab_size)
        shape = cache_shape(model_config, config.cache_slots, tokenizer.context_length)
        fitting = config.context_length or context_that_fits(shape, dtype, device)
        shape = dataclasses.replace(shape, context=min(fitting, tokenizer.context_length))
        if config.context_length is None and shape.context < tokenizer.context_length:
            log.warning(
                "context shortened to what the GPU holds; lower engine.cache_slots for more",
                context=shape.context,
                of_the_model=tokenizer.context_length,
            )
        self._context = shape.context
        cache = KVCache(shape, dtype, device)
        scheduler = Scheduler(
            SlotPool(config.cache_slots, self._context, cache.copy),
            max_running=config.max_running,
            max_waiting=config.max_waiting,
            prefill_chunk=config.prefill_chunk,
        )
        # The loader's thread sets its number of cores, which new threads take over; the engine's
        # thread comes after it and sets its own.
        threads = config.threads or torch.get_num_threads()
        self._loader = Loader(Builder(shape, dtype, device), lambda: bool(scheduler.running))
        self._worker = Worker(
            cache,
            scheduler,
            frozenset(tokenizer.eos_ids),
            threads=threads,
            free=self._loader.free,
        )

    async def info(self) -> EngineInfo:
        """See ``Engine.info``."""
        worker = self._worker
        return EngineInfo(
            name="torch",
            tokenizer_hash=self._tokenizer.hash,
            context_length=self._context,
            eos_ids=list(self._tokenizer.eos_ids),
            capabilities=[*_CAPABILITIES, *(["json_schema"] * self._grammars.works)],
            live=worker.versions.live(),
            loaded=worker.versions.loaded(),
            running=len(worker.scheduler.running),
            waiting=worker.scheduler.waiting,
            last_error=worker.last_error,
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        """See ``Engine.generate``."""
        check_generate(request, self._context, self._vocab_size)
        began = time.monotonic()
        guide = None
        if request.constraint is not None:
            guide = await self._grammars.guide(
                request.constraint, request.deadline_s, request.caller
            )
        mailbox: Mailbox[TokenChunk | ScoreResult | EngineError] = Mailbox(self._worker.delivery)
        generation = Generation.start(request, mailbox, self._detokenizer, self._context, guide)
        generation.deadline -= time.monotonic() - began
        self._worker.submit(generation)
        try:
            while True:
                chunk = await mailbox.get()
                if isinstance(chunk, EngineError):
                    raise chunk
                assert isinstance(chunk, TokenChunk)
                yield chunk
                if chunk.finish_reason is not None:
                    return
        finally:
            generation.cancelled = True

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """See ``Engine.score``."""
        check_score(request, self._context, self._vocab_size)
        mailbox: Mailbox[TokenChunk | ScoreResult | EngineError] = Mailbox(self._worker.delivery)
        scoring = Scoring.start(request, mailbox)
        self._worker.submit(scoring)
        try:
            result = await mailbox.get()
        finally:
            scoring.cancelled = True
        if isinstance(result, EngineError):
            raise result
        assert isinstance(result, ScoreResult)
        return result

    async def load(self, source: VersionSource, *, live: bool) -> None:
        """See ``Engine.load``. A version already loaded from the same place is not read again."""
        weights = self._worker.versions.find(source.policy, source.version)
        if weights is None or weights.source != source:
            weights = await self._loader.build(source)
        ready = weights
        await asyncio.wrap_future(self._worker.call(lambda: self._worker.install(ready, live=live)))

    async def unload(self, policy: str, version: int) -> None:
        """See ``Engine.unload``."""
        await asyncio.wrap_future(self._worker.call(lambda: self._worker.remove(policy, version)))

    async def close(self) -> None:
        """See ``Engine.close``."""
        await asyncio.to_thread(self._worker.close)
        self._grammars.close()
        self._loader.close()
