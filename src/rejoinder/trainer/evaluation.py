"""Evaluation at intervals: fixed prompts answered by a version, scored, kept with the version."""

from __future__ import annotations

import asyncio
import importlib
import json
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import structlog

from rejoinder.chat.messages import BadMessages, for_template, normalise
from rejoinder.chat.renderer import Renderer
from rejoinder.chat.unicode import mend_escapes
from rejoinder.config import EvaluationConfig
from rejoinder.engine.base import Engine, GenerateRequest
from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.journal.records import PolicyVersion
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.paths import expanded
from rejoinder.policy.registry import version_sources
from rejoinder.types import Json, Message, Sampling, new_id

log = structlog.get_logger(__name__)

Scorer: TypeAlias = Callable[[list[Json], str], float]
"""(messages as chat dictionaries, answer) -> score; the mean is kept."""

_PRIORITY = 20
"""People and judges go first."""
_AT_ONCE = 4
_DEADLINE_S = 600.0


class EvaluationJournal(Protocol):
    """What evaluation needs of the journal."""

    def add_evaluation(
        self, policy: str, version: int, name: str, score: float, detail: Json
    ) -> None:
        """Keep an evaluation result with its version."""
        ...

    def count(self, role: str, name: str, reason: str, amount: int = 1) -> None:
        """Add to a named counter."""
        ...


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """What is asked, and who scores it."""

    name: str
    prompts: list[tuple[Message, ...]]
    scorer: Scorer


def load_evaluation_set(config: EvaluationConfig) -> EvaluationSet:
    """Read the prompts and import the scorer.

    Raises:
        ConfigError: a file, line or callable is missing or wrong.
    """
    assert config.prompts is not None
    assert config.scorer is not None
    path = expanded(config.prompts)
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"evaluation.prompts: cannot read {path}: {error}") from error
    prompts = [
        _prompt(line, f"evaluation.prompts: {path} line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not prompts:
        raise ConfigError(f"evaluation.prompts: {path} has no prompts")
    return EvaluationSet(path.stem, prompts, _scorer(config.scorer))


def _prompt(line: str, where: str) -> tuple[Message, ...]:
    try:
        return normalise(json.loads(mend_escapes(line))["messages"])
    except (ValueError, KeyError, TypeError, RecursionError, BadMessages) as error:
        raise ConfigError(
            f'{where} is not {{"messages": [{{"role": ..., "content": ...}}]}}: {error!r}'
        ) from error


def _scorer(target: str) -> Scorer:
    module, _, name = target.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"evaluation.scorer: cannot import {target!r}: {error}") from error
    if not callable(found):
        raise ConfigError(f"evaluation.scorer: {target!r} is not callable")
    return found


class Evaluator:
    """Evaluates versions in a thread; training does not wait for it.

    While one evaluation runs, only the newest version waits; those it replaces are counted.
    """

    def __init__(
        self,
        config: EvaluationConfig,
        connect: Callable[[], Engine],
        renderer: Renderer,
        tokenizer: ModelTokenizer,
        journal: EvaluationJournal,
        note_problem: Callable[[str | None], None],
    ) -> None:
        """Read prompts and scorer; ``note_problem`` hears of a failure, and None after a success.

        Raises:
            ConfigError: prompts or scorer are missing or wrong.
        """
        self._every = config.every
        self._max_tokens = config.max_tokens
        self._set = load_evaluation_set(config)
        self._connect = connect
        self._renderer = renderer
        self._tokenizer = tokenizer
        self._journal = journal
        self._note_problem = note_problem
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="evaluation")
        self._newest: Future[None] | None = None

    def submit(self, version: PolicyVersion) -> None:
        """Evaluate a version if its step is due (the base counts as step 0)."""
        if (version.step or 0) % self._every:
            return
        if self._newest is not None and self._newest.cancel():
            self._journal.count("trainer", "evaluations", "replaced_by_newer")
        self._newest = self._worker.submit(self._evaluate, version)

    def close(self) -> None:
        """Drop what waits and wait for what runs."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _evaluate(self, version: PolicyVersion) -> None:
        began = time.monotonic()
        try:
            mean, detail = self._result(asyncio.run(self._scores(version)), began)
            self._journal.add_evaluation(
                version.policy, version.version, self._set.name, mean, detail
            )
        except Exception as error:  # noqa: BLE001 - of the engine, the user's scorer, the journal
            log.warning("evaluation failed", version=version.version, error=str(error))
            self._journal.count("trainer", "evaluations", "failed")
            self._note_problem(f"version {version.version}: {error}")
            return
        self._note_problem(None)
        log.info("evaluated", version=version.version, set=self._set.name, score=round(mean, 4))

    def _result(self, scores: list[float], began: float) -> tuple[float, Json]:
        mean = sum(scores) / len(scores)
        if not math.isfinite(mean):
            raise RejoinderError("the scorer gave a score that is not a finite number")
        return mean, {"scores": scores, "seconds": time.monotonic() - began}

    async def _scores(self, version: PolicyVersion) -> list[float]:
        engine = self._connect()
        try:
            # Loaded on purpose it stays until unloaded, also when the next one goes live.
            await engine.load(version_sources([version])[0], live=False)
            room = asyncio.Semaphore(_AT_ONCE)
            try:
                return await asyncio.gather(
                    *(self._score(engine, room, version, prompt) for prompt in self._set.prompts)
                )
            finally:
                await engine.unload(version.policy, version.version)
        finally:
            await engine.close()

    async def _score(
        self,
        engine: Engine,
        room: asyncio.Semaphore,
        version: PolicyVersion,
        messages: Sequence[Message],
    ) -> float:
        async with room:
            answer = await self._answer(engine, version, messages)
        plain = [dict(for_template(message)) for message in messages]
        return float(self._set.scorer(plain, answer))

    async def _answer(
        self, engine: Engine, version: PolicyVersion, messages: Sequence[Message]
    ) -> str:
        request = GenerateRequest(
            request_id=f"evaluation-{new_id()}",
            prompt_ids=self._renderer.render(messages).ids(),
            sampling=Sampling(max_tokens=self._max_tokens, temperature=0.0),
            policy=version.policy,
            version=version.version,
            deadline_s=_DEADLINE_S,
            priority=_PRIORITY,
            whole=True,
        )
        ids: list[int] = []
        async for chunk in engine.generate(request):
            ids += chunk.ids
        return self._tokenizer.decode(ids)
