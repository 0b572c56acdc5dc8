"""The judging loop: claims jobs, has them judged and read for hints, and commits what was found."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import structlog

from rejoinder.journal.base import JudgeJournal, SampleRule, WatchJournal
from rejoinder.journal.records import JudgeTask, RoleReport, SampleSpec, judgement_of
from rejoinder.judge.base import Judge
from rejoinder.judge.hints.base import HintFate, Hinting, HintJudge
from rejoinder.judge.reading import Reader
from rejoinder.judge.voting import (
    NOT_ASKED,
    another_attempt_may_help,
    failure_code,
    failures,
    its_own_fault_is_possible,
    nothing_was_tried,
)
from rejoinder.types import Fate, Judgement, Vote

_log = structlog.get_logger(__name__)

_T = TypeVar("_T")

ROLE = "judge"
_POLL_S = 0.1
_REPORT_S = 2.0
_FIRST_RETRY_S = 1.0
_LONGEST_PAUSE_S = 5.0
_FOR_WANT_OF_A_HINT = (Fate.NO_HINT, Fate.NEUTRAL)
"""What an algorithm says of a turn that a hint could have made a sample of."""
_LEASE_SLACK_S = 15.0
"""A lease outlives the longest judgement by this, so that its commit is still accepted."""


class LoopJournal(JudgeJournal, WatchJournal, Protocol):
    """What the loop needs of the journal."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """How much at once, how long, how often."""

    concurrency: int
    deadline_s: float
    """For one judgement, all its votes; after it the attempt has failed."""
    attempts: int

    @property
    def lease_s(self) -> float:
        """How long a claimed job is this process's alone."""
        return self.deadline_s + _LEASE_SLACK_S


class JudgeLoop:
    """Judges what the journal queues until it is told to stop.

    A failed attempt is given back and comes again after 1, 2, 4… seconds; after
    ``limits.attempts`` the turn ends as *no verdict*. While the engine or endpoint cannot be
    reached at all, jobs are given back without counting an attempt and claiming pauses.
    """

    def __init__(
        self,
        journal: LoopJournal,
        judge: Judge | None,
        rule: SampleRule,
        limits: LoopLimits,
        external: Sequence[str] = (),
        hints: HintJudge | None = None,
    ) -> None:
        """``judge`` is None where the algorithm needs no verdicts.

        ``external`` names the places off this machine that conversations go to (rule 9). ``hints``
        draws hints from what came after an answer, beside the verdict; where it is the judge
        itself, both come from one pass.
        """
        self._journal = journal
        self._reader = Reader(judge, hints, limits.deadline_s, limits.attempts)
        self._rule = rule
        self._limits = limits
        self._instance = f"{ROLE}-{os.getpid()}"
        self._running: set[asyncio.Task[None]] = set()
        self._status = _Status(external, judge, hints)
        # The journal's own threads: a judge that fills the event loop's must not stop the commits.
        self._threads = ThreadPoolExecutor(limits.concurrency + 1, "judge-journal")
        self._pause_s = 0.0
        self._paused_until = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; jobs in flight are then given back untried."""
        self._status.forget()  # what ``report_start`` told was waited for, and has come
        reporter = asyncio.create_task(self._report_regularly())
        try:
            while not stop.is_set():
                self._raise_what_broke(reporter)
                if not await self._claim():
                    await self._wait(stop)
        finally:
            await _cancel({*self._running, reporter})
            self._threads.shutdown()  # a commit under way still ends
            self._report("stopped")

    def report_start(self, state: str, error: str | None = None) -> None:
        """Send a heartbeat before ``run``: what the judge is waiting for."""
        self._status.note(error)
        self._report(state)

    async def _claim(self) -> bool:
        """Start as many jobs as there is room for; after a pause one at a time, as a probe."""
        if time.monotonic() < self._paused_until:
            return False
        room = (1 if self._pause_s else self._limits.concurrency) - len(self._running)
        if room <= 0:
            return False
        tasks = await self._in_thread(
            lambda: self._journal.claim_judging(self._instance, room, self._limits.lease_s)
        )
        self._running.update(asyncio.create_task(self._handle(task)) for task in tasks)
        # Each has to begin: a task that is cancelled before that would not give its job back.
        await asyncio.sleep(0)
        return bool(tasks)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _wait(self, stop: asyncio.Event) -> None:
        """Wait a moment, but no longer than until a job ends or the loop is stopped."""
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait(
            {stopped, *self._running}, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED
        )
        stopped.cancel()

    def _raise_what_broke(self, reporter: asyncio.Task[None]) -> None:
        """Drop ended jobs; one that raised (the journal failed) ends the loop."""
        for task in [task for task in (*self._running, reporter) if task.done()]:
            self._running.discard(task)
            task.result()

    async def _handle(self, task: JudgeTask) -> None:
        try:
            judgement, hinting = await self._reader.read(task)
        except asyncio.CancelledError:
            self._journal.retry_judging(task, 0.0, "the judge was stopped", counts=False)
            raise
        await self._in_thread(lambda: self._settle(task, judgement, hinting))

    def _settle(
        self, task: JudgeTask, judgement: Judgement | None, hinting: Hinting | None
    ) -> None:
        """Commit a judgement and its hints, or give the job back for another attempt."""
        standing = NOT_ASKED if judgement is None else judgement
        failed = failures(standing)
        for vote in failed:
            self._journal.count(ROLE, "failed_calls", failure_code(vote))
        for reason in hinting.failed_calls if hinting else ():
            self._journal.count(ROLE, "failed_hint_calls", failure_code(Vote(None, reason)))
        self._status.note(failed[-1].reason if failed else None)
        if hinting is not None and hinting.why is HintFate.FAILED:
            self._status.note(f"hints: {hinting.detail}")
        if nothing_was_tried(standing):
            self._pause(task, standing)
            return
        lost = failed[-1].reason if another_attempt_may_help(standing) else None
        if task.feedback is not None:
            standing = judgement_of(task.feedback)
        signal = self._rule.sample_spec(standing, hinting.hints if hinting else ())
        if signal in _FOR_WANT_OF_A_HINT and hinting and hinting.why is HintFate.FAILED:
            calls = tuple(Vote(None, reason) for reason in hinting.failed_calls)
            asked = Judgement(None, calls, "", Fate.JUDGE_FAILED)
            if nothing_was_tried(asked):
                self._pause(task, asked)
                return
            lost, signal = hinting.detail, Fate.HINT_FAILED
        self._pause_s = self._paused_until = 0.0
        if lost is not None and task.attempt < self._limits.attempts:
            after_s = _FIRST_RETRY_S * 2 ** (task.attempt - 1)
            self._journal.retry_judging(task, after_s, lost)
            return
        self._commit(task, judgement, signal, hinting)

    def _pause(self, task: JudgeTask, untried: Judgement) -> None:
        """Give a job back untried, and claim no other for a while."""
        self._pause_s = min(_LONGEST_PAUSE_S, max(_FIRST_RETRY_S, 2 * self._pause_s))
        self._paused_until = time.monotonic() + self._pause_s
        # One prompt may be what an endpoint breaks at: the next probe is then another job.
        after_s = 2 * self._pause_s if its_own_fault_is_possible(untried) else 0.0
        self._journal.retry_judging(task, after_s, untried.votes[-1].reason, counts=False)

    def _commit(
        self,
        task: JudgeTask,
        judgement: Judgement | None,
        signal: SampleSpec | Fate,
        hinting: Hinting | None,
    ) -> None:
        sample = signal if isinstance(signal, SampleSpec) else None
        if sample is not None and sample.hints and self._reader.hints is not None:
            sample = replace(sample, hinted_by=self._reader.hints.maker)
        fate = signal if isinstance(signal, Fate) else None
        no_hint = None if hinting is None else hinting.reason
        if self._journal.commit_judgement(task, judgement, sample, fate, no_hint):
            if judgement is not None:
                self._status.committed(judgement)
            if hinting is not None:
                self._journal.count(ROLE, "hints", hinting.why or "accepted")
        else:  # superseded, scored by a person, or taken over by another judge
            self._journal.count(ROLE, "refused_commits", "outdated")

    async def _report_regularly(self) -> None:
        while True:
            self._report("waiting" if self._pause_s else "ready")
            await asyncio.sleep(_REPORT_S)

    def _report(self, state: str) -> None:
        self._journal.report(self._status.heartbeat(self._instance, state))


class _Status:
    """Figures for the heartbeat."""

    def __init__(
        self, external: Sequence[str], judge: Judge | None, hints: HintJudge | None
    ) -> None:
        self._external = list(external)
        self._fingerprint = None if judge is None else judge.fingerprint
        self._hints_fingerprint = None if hints is None else hints.maker.fingerprint
        self._started_at = time.time()
        self._error: str | None = None
        self._error_at: float | None = None
        self._verdicts = {"good": 0, "bad": 0, "neutral": 0, "none": 0}
        self._seconds = 0.0

    def note(self, error: str | None) -> None:
        if error is not None:
            self._error, self._error_at = error, time.time()

    def forget(self) -> None:
        self._error = self._error_at = None

    def committed(self, judgement: Judgement) -> None:
        names = {1: "good", -1: "bad", 0: "neutral", None: "none"}
        self._verdicts[names[judgement.score]] += 1
        self._seconds += judgement.seconds

    def heartbeat(self, instance: str, state: str) -> RoleReport:
        judged = sum(self._verdicts.values())
        return RoleReport(
            role=ROLE,
            instance=instance,
            pid=os.getpid(),
            state=state,
            detail={
                "fingerprint": self._fingerprint,
                "hints_fingerprint": self._hints_fingerprint,
                "external": self._external,
                "verdicts": dict(self._verdicts),
                "seconds_per_judgement": round(self._seconds / judged, 3) if judged else None,
            },
            last_error=self._error,
            last_error_at=self._error_at,
            started_at=self._started_at,
            seen_at=time.time(),
        )


async def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until each has cleaned up; the first other error is raised."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result
