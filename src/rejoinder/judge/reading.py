"""One reading of a job: a verdict and hints within a deadline; neither costs the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import structlog

from rejoinder.journal.records import JudgeTask
from rejoinder.judge.base import Judge
from rejoinder.judge.hints.base import HintFate, Hinting, HintJudge
from rejoinder.judge.one_pass import ReadsBoth
from rejoinder.judge.tracebacks import short_traceback
from rejoinder.judge.voting import failed_vote, malformed
from rejoinder.types import Fate, Judgement, Message, Vote

_log = structlog.get_logger(__name__)

_T = TypeVar("_T")

_Ask: TypeAlias = Callable[[Sequence[Message], Message, Sequence[Message]], Awaitable[_T]]


@dataclass(frozen=True, slots=True)
class _Failed:
    """Why there is no answer; what a judge of another package returns may be anything else."""

    vote: Vote


@dataclass(frozen=True, slots=True)
class Reader:
    """Asks a judge and a hint judge about jobs. Where one object is both, it is asked once."""

    judge: Judge | None
    """None where the algorithm needs no verdicts."""
    hints: HintJudge | None
    deadline_s: float
    attempts: int

    async def read(self, task: JudgeTask) -> tuple[Judgement | None, Hinting | None]:
        """Return what was found; None in the place of what was not asked for.

        No verdict is asked for where nothing would learn from it: where there is no judge, and
        where a person has scored the answer.
        """
        judge = self.judge if task.feedback is None else None
        if refusal := self._refusal(task):
            return (
                None if judge is None else _no_verdict(judge, refusal),
                None if self.hints is None else _no_hints(refusal),
            )
        hinter: object = self.hints
        if judge is not None and judge is hinter and isinstance(judge, ReadsBoth):
            return await self._both(task, judge, judge.read)
        return await asyncio.gather(self._verdict(task, judge), self._hinting(task))

    async def _verdict(self, task: JudgeTask, judge: Judge | None) -> Judgement | None:
        if judge is None:
            return None
        found = await self._within_deadline(task, judge.judge, "judgement")
        if isinstance(found, _Failed):
            return _no_verdict(judge, found.vote)
        return _sound(judge, found)

    async def _hinting(self, task: JudgeTask) -> Hinting | None:
        if self.hints is None:
            return None
        found = await self._within_deadline(task, self.hints.hints, "hint")
        return _no_hints(found.vote) if isinstance(found, _Failed) else found

    async def _both(
        self, task: JudgeTask, judge: Judge, ask: _Ask[tuple[Judgement, Hinting]]
    ) -> tuple[Judgement, Hinting]:
        found = await self._within_deadline(task, ask, "judgement")
        if isinstance(found, _Failed):
            return _no_verdict(judge, found.vote), _no_hints(found.vote)
        judgement, hinting = found
        return _sound(judge, judgement), hinting

    async def _within_deadline(self, task: JudgeTask, ask: _Ask[_T], what: str) -> _T | _Failed:
        """Ask about a job's turn, and say what went wrong where there is no answer."""
        try:
            async with asyncio.timeout(self.deadline_s):
                return await ask(task.context, task.answer, task.next_state)
        except TimeoutError:
            return _Failed(failed_vote("timeout", f"no {what} in {self.deadline_s:g} s"))
        except Exception as error:  # noqa: BLE001 - a judge of another package; it is no verdict
            text = short_traceback(error)
            _log.warning("judge raised", turn=task.turn_id, asked_for=what, exception=text)
            return _Failed(failed_vote("exception", f"{type(error).__name__}: {error}"))

    def _refusal(self, task: JudgeTask) -> Vote | None:
        """Return a failed vote for a job that must not reach a judge.

        An attempt that ended in any other way than the death of the process was settled, so only
        deaths lead past the limit: judging it again could end this process too, and so for ever.
        """
        if task.attempt > self.attempts:
            return failed_vote("died", f"the judge died each time, {task.attempt - 1} times")
        if task.unreadable is not None:
            return failed_vote("unreadable", task.unreadable)
        return None


def _sound(judge: Judge, judgement: Judgement) -> Judgement:
    fault = malformed(judgement)
    return judgement if fault is None else _no_verdict(judge, fault)


def _no_verdict(judge: Judge, why: Vote) -> Judgement:
    return Judgement(None, (why,), judge.fingerprint, Fate.JUDGE_FAILED)


def _no_hints(why: Vote) -> Hinting:
    return Hinting((), HintFate.FAILED, why.reason, failed_calls=(why.reason,))
