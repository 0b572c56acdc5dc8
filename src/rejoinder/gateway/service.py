"""What the routes of one gateway process share."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor

from rejoinder.chat.families.registry import choose_family
from rejoinder.chat.renderer import Renderer
from rejoinder.config import Config
from rejoinder.engine.base import Engine, EngineInfo
from rejoinder.engine.limits import unknown_version
from rejoinder.errors import EngineError, EngineUnavailable
from rejoinder.gateway.auth import KeyRing
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.generation import Generation
from rejoinder.gateway.limits import Admission
from rejoinder.gateway.linker import Linker
from rejoinder.gateway.metrics import GatewayMetrics
from rejoinder.gateway.models import ModelNames, Target
from rejoinder.gateway.prompts import PromptMaker
from rejoinder.gateway.recorder import GatewayJournal, Recorder
from rejoinder.gateway.splicer import Splicer
from rejoinder.gateway.tally import SharedTally
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.models.tokenizer import ModelTokenizer

PROBE_S = 5.0
"""Longest wait for the engine's description."""


class Service:
    """Built once per process; holds no request."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        journal: GatewayJournal,
        tokenizer: ModelTokenizer,
        keys: KeyRing,
        owner: str,
        renderer: Renderer | None = None,
        shared: SharedTally | None = None,
    ) -> None:
        self.config = config
        self.engine = engine
        self.journal = journal
        self.tokenizer = tokenizer
        self.keys = keys
        self.vocab_size = tokenizer.vocab_size
        self.owner = owner
        self.started_at = time.time()
        self.draining = False
        self.info: EngineInfo | None = None
        """The engine's last description; None before the first."""
        self.engine_problem: str | None = "not asked yet"
        self.last_error: tuple[str, float] | None = None
        """The last failure of the engine or journal and its time, for ``status``."""
        self.metrics = GatewayMetrics()
        self.recorder = Recorder(journal, self.metrics)
        self.models = ModelNames(config.model)
        self.admission = Admission(config.gateway, keys.names, shared)
        self.generations = set[Generation]()
        """Answers being sampled, to be told of the end of this process."""
        self.reads = ThreadPoolExecutor(2, "journal-read")
        self.renders = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "render")
        self.splicer = Splicer(journal.read_turn_ids, tokenizer, self.metrics)
        self.linker = Linker(journal, self.reads, self.metrics, self.splicer)
        self.family = choose_family(config.model.family, tokenizer, renderer)
        self.prompts = PromptMaker(self.family.renderer, tokenizer, self.renders)
        self.token_texts = TokenTexts(tokenizer.tokenizer)

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and answer: the engine's, before it is known the model's."""
        return self.info.context_length if self.info else self.tokenizer.context_length

    async def probe_engine(self) -> None:
        """Ask the engine what it is; keeps the problem instead of raising it."""
        try:
            async with asyncio.timeout(PROBE_S):  # `wait_for` loses cancellations in Python 3.11
                info = await self.engine.info()
        except (EngineError, TimeoutError) as error:
            self.engine_problem = str(error) or "the engine does not answer in time"
            return
        self.info = info
        self.engine_problem = None
        if info.tokenizer_hash != self.tokenizer.hash:
            self.engine_problem = (
                f"the engine {info.name!r} has another tokenizer than model.path; start both with "
                "the same configuration"
            )

    def check_engine(self) -> None:
        """Refuse to send ids to an engine that would read them as other text.

        Raises:
            EngineUnavailable: the tokenizers differ.
        """
        if self.info is not None and self.info.tokenizer_hash != self.tokenizer.hash:
            raise EngineUnavailable(self.engine_problem or "the tokenizers differ")

    async def check_version(self, target: Target) -> None:
        """Refuse a pinned version that the engine says it does not hold.

        The description may be older than the version, so the engine is asked again before; where
        it does not answer, the request itself finds out.

        Raises:
            UnknownVersion: the version is not loaded; the message names those that are.
        """
        if self._may_hold(target):
            return
        await self.probe_engine()
        if self.engine_problem is None and self.info is not None and not self._may_hold(target):
            loaded = self.info.loaded.get(target.policy, ())
            raise unknown_version(target.policy, target.version, loaded)

    def _may_hold(self, target: Target) -> bool:
        if target.version is None or self.info is None or self.engine_problem is not None:
            return True
        return target.version in self.info.loaded.get(target.policy, ())

    def note_error(self, text: str) -> None:
        """Keep an error for ``status``."""
        self.last_error = (text, time.time())

    def forget_error(self, text: str | None) -> None:
        """Take an error back that turned out to be none; another one since then stays."""
        if self.last_error is not None and self.last_error[0] == text:
            self.last_error = None

    def count_error(self, error: ApiError) -> None:
        """Count a refusal in metrics and for ``status``."""
        self.metrics.errors.labels(str(error.status), error.code).inc()
        self.recorder.count("rejected", error.code)

    def drain(self) -> None:
        """Refuse new requests from now on; those in progress go on."""
        self.draining = True
        self.admission.close(self.config.gateway.drain_s)

    def end_answers(self) -> None:
        """Break off the answers that are being sampled; their clients are told."""
        for generation in list(self.generations):
            generation.end()

    def close(self) -> None:
        """Stop the threads."""
        self.reads.shutdown(wait=False, cancel_futures=True)
        self.renders.shutdown(wait=False, cancel_futures=True)
