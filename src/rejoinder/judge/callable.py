"""A judge that is a Python function: an own rule, an own model, an own service."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import TypeAlias, cast

import structlog

from rejoinder.config import CallableJudgeConfig
from rejoinder.errors import ConfigError
from rejoinder.judge.base import JudgeSetting, fingerprint_of
from rejoinder.judge.threads import DaemonThreads, ThreadsExhausted
from rejoinder.judge.tracebacks import short_traceback
from rejoinder.judge.voting import BUSY, failed_vote, verdict
from rejoinder.types import Fate, Judgement, Message, Vote

_log = structlog.get_logger(__name__)

Scorer: TypeAlias = Callable[
    [Sequence[Message], Message, Sequence[Message]], int | Awaitable[int | None] | None
]
"""(context, answer, next state) -> -1, 0, 1, or None for *no verdict*; may be ``async``."""


_MOST_STUCK = 8
"""Calls that may hang beyond those at work; with more, judging waits and says so."""
_NO_OPINION = Vote(None, "no opinion: the function returned None")


class CallableJudge:
    """One vote of ``scorer``. An exception or another value is a failed vote. See ``Judge``.

    None is no failure: the judgement ends as ``judge_unsure`` and is not tried again.

    A call that outlives its time-out cannot be ended and keeps its thread. When such calls hold
    all threads, nothing more is called until one returns: the vote is ``busy``, no attempt is lost.
    """

    def __init__(self, scorer: Scorer, name: str, timeout_s: float, concurrency: int = 1) -> None:
        self._scorer = scorer
        self._name = name
        self._timeout_s = timeout_s
        self._threads = DaemonThreads(concurrency + _MOST_STUCK)
        self._fingerprint = fingerprint_of("callable", target=name, source=_source(scorer))

    @property
    def fingerprint(self) -> str:
        """See ``Judge.fingerprint``; changes with the function's source too."""
        return self._fingerprint

    async def judge(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Judgement:
        """See ``Judge.judge``."""
        started = time.monotonic()
        vote = await self._vote(context, answer, next_state)
        votes = (vote,)
        # An abstention is an answer: asking the same function the same again would only repeat it.
        score, why = (None, Fate.JUDGE_UNSURE) if vote is _NO_OPINION else verdict(votes, quorum=1)
        return Judgement(score, votes, self._fingerprint, why, time.monotonic() - started)

    async def _vote(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Vote:
        try:
            async with asyncio.timeout(self._timeout_s):
                # In a thread: a plain function may block, and the loop must keep its heartbeat.
                value = await self._threads.call(self._scorer, context, answer, next_state)
                if inspect.isawaitable(value):
                    value = await value
            return _vote_of(value)  # here, for what is no number may raise when it is compared
        except ThreadsExhausted:
            return failed_vote(BUSY, self._stuck())
        except TimeoutError:
            return failed_vote("timeout", f"no score within {self._timeout_s:g} s")
        except Exception as error:  # noqa: BLE001 - foreign code; whatever it raises is no verdict
            _log.warning("judge raised", target=self._name, exception=short_traceback(error))
            return failed_vote("exception", f"{type(error).__name__}: {error}")

    def _stuck(self) -> str:
        return (
            f"{self._threads.running} calls of {self._name} have not returned; end what they wait "
            "for, or give the function time-outs of its own and restart the judge"
        )

    async def check(self) -> None:
        """The function was imported when the judge was built."""

    async def close(self) -> None:
        """Nothing is held."""


def _vote_of(value: object) -> Vote:
    if value is None:
        return _NO_OPINION
    for score in (-1, 0, 1):
        if not isinstance(value, bool) and value == score:
            return Vote(score)
    return failed_vote("bad_score", f"{value!r} is none of -1, 0, 1")


def _source(scorer: Scorer) -> str:
    try:
        return inspect.getsource(scorer)
    except (OSError, TypeError):  # built in C, typed at a prompt, or an object that is callable
        return ""


def build(setting: JudgeSetting) -> CallableJudge:
    """Import the function that ``judge.target`` names.

    Raises:
        ConfigError: it cannot be imported or called.
    """
    config = setting.config
    assert isinstance(config, CallableJudgeConfig)
    module_name, _, name = config.target.partition(":")
    try:
        scorer = attrgetter(name)(importlib.import_module(module_name))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"judge.target: cannot import {config.target}: {error}") from error
    if not callable(scorer):
        raise ConfigError(f"judge.target: {config.target} is not callable")
    return CallableJudge(
        cast("Scorer", scorer), config.target, config.timeout_s, config.concurrency
    )
