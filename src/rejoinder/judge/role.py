"""The judge role: puts the parts together and judges until told to stop."""

from __future__ import annotations

import asyncio
import signal

import structlog

from rejoinder.algorithms.registry import build_algorithm
from rejoinder.config import Config, JudgeConfig, LlmJudgeConfig
from rejoinder.engine.base import Engine
from rejoinder.engine.connect import connect_engine
from rejoinder.errors import EngineError, JudgeError, RejoinderError
from rejoinder.journal.sql import SqlJournal
from rejoinder.judge.base import Judge, JudgeSetting
from rejoinder.judge.endpoint import external_places
from rejoinder.judge.factory import build_judge
from rejoinder.judge.loop import JudgeLoop, LoopLimits
from rejoinder.models.embedded import resolve_model
from rejoinder.models.tokenizer import load_tokenizer

log = structlog.get_logger(__name__)
_CHECK_AGAIN_S = 1.0


def judge_setting(config: Config, engine: Engine) -> JudgeSetting:
    """Return what the configured judge is built from."""
    tokenizer = load_tokenizer(resolve_model(config.model.path))
    policy, model = config.model.policy, config.model.path
    return JudgeSetting(config.judge, policy, engine, tokenizer, model)


def run_judge(config: Config) -> None:
    """Judge until SIGTERM or SIGINT; jobs in flight are then given back.

    Raises:
        ConfigError: the judge cannot work as configured.
        JournalError: the journal cannot be used.
    """
    with SqlJournal(config.journal_url) as journal:
        asyncio.run(_run(config, journal))


async def _run(config: Config, journal: SqlJournal) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    engine = connect_engine(config)
    judge = build_judge(judge_setting(config, engine))
    limits = judging_limits(config.judge)
    rule, external = build_algorithm(config.trainer), external_places(config.judge)
    loop = JudgeLoop(journal, judge, rule, limits, external)
    try:
        await _until_ready(judge, loop, stop)
        if not stop.is_set():
            await loop.run(stop)
    finally:
        await judge.close()
        await engine.close()


def judging_limits(config: JudgeConfig) -> LoopLimits:
    """Return the loop's limits: ``timeout_s`` is one call's, a judgement may take several."""
    calls = config.votes if isinstance(config, LlmJudgeConfig) else 1
    return LoopLimits(config.concurrency, calls * config.timeout_s, config.attempts)


async def _until_ready(judge: Judge, loop: JudgeLoop, stop: asyncio.Event) -> None:
    """Wait for what the judge calls; a judge that cannot work raises at once."""
    while not stop.is_set():
        try:
            await judge.check()
        except (EngineError, JudgeError) as error:
            loop.report_start("waiting", str(error))
        except RejoinderError as error:
            loop.report_start("failed", str(error))
            raise
        else:
            return
        try:
            async with asyncio.timeout(_CHECK_AGAIN_S):
                await stop.wait()
        except TimeoutError:
            continue
