"""The judge role: puts the parts together and judges until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
from collections.abc import Coroutine, Sequence

import structlog

from rejoinder.algorithms.base import Algorithm
from rejoinder.algorithms.registry import build_algorithm
from rejoinder.config import Config, HintsConfig, JudgeConfig, LlmVotesConfig
from rejoinder.engine.base import Engine
from rejoinder.engine.connect import connect_engine
from rejoinder.errors import EngineError, JudgeError, RejoinderError
from rejoinder.journal.sql import SqlJournal
from rejoinder.judge.base import Judge, JudgeSetting
from rejoinder.judge.endpoint import external_places
from rejoinder.judge.factory import build_judges
from rejoinder.judge.hints.base import HintJudge
from rejoinder.judge.hints.factory import refuse_missing_hints
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
    setting, rule = judge_setting(config, engine), build_algorithm(config.trainer)
    refuse_missing_hints(rule, config)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(engine.close)
        judge, hints = build_judges(setting, config.hints, needs_verdicts=rule.needs_verdicts)
        # By identity: one object may be both, and one of another package need not have a hash.
        judges = list({id(one): one for one in (judge, hints) if one is not None}.values())
        for one in judges:
            stack.push_async_callback(one.close)
        limits, external = judging_limits(config, rule), external_places(*_asked(config, rule))
        loop = JudgeLoop(journal, judge, rule, limits, external, hints)
        await _unless(stop, _until_ready(judges, loop))
        if not stop.is_set():
            await loop.run(stop)


async def _unless(stop: asyncio.Event, work: Coroutine[object, object, None]) -> None:
    """Do some work, broken off once ``stop`` is set: its calls may wait for a model to load."""
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (working, stopped):
            task.cancel()
        await asyncio.gather(working, stopped, return_exceptions=True)


def judging_limits(config: Config, rule: Algorithm) -> LoopLimits:
    """Return the loop's limits: ``timeout_s`` is one call's, a judgement may take several."""
    judge, hints = config.judge, config.hints
    deadline_s = (_calls(judge) if rule.needs_verdicts else 1) * judge.timeout_s
    if isinstance(hints, LlmVotesConfig):
        # So many jobs at a time share the places that hint calls have.
        rounds = math.ceil(judge.concurrency / hints.concurrency)
        deadline_s = max(deadline_s, rounds * _calls(hints) * hints.timeout_s)
    return LoopLimits(judge.concurrency, deadline_s, judge.attempts)


def _asked(config: Config, rule: Algorithm) -> Sequence[JudgeConfig | HintsConfig]:
    return (config.judge, config.hints) if rule.needs_verdicts else (config.hints,)


def _calls(config: JudgeConfig | HintsConfig) -> int:
    return config.votes if isinstance(config, LlmVotesConfig) else 1


async def _until_ready(judges: Sequence[Judge | HintJudge], loop: JudgeLoop) -> None:
    """Wait for what the judges call; one that cannot work raises at once."""
    while True:
        try:
            for judge in judges:
                await judge.check()
        except (EngineError, JudgeError) as error:
            loop.report_start("waiting", str(error))
        except RejoinderError as error:
            loop.report_start("failed", str(error))
            raise
        else:
            return
        await asyncio.sleep(_CHECK_AGAIN_S)
