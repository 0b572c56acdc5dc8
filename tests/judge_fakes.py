"""Fakes that several tests of this room share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rejoinder.engine.base import EngineInfo, ScoreRequest, ScoreResult
from rejoinder.journal.records import JudgeTask, RoleReport, SampleSpec
from rejoinder.judge.completion import Completion
from rejoinder.judge.voting import failed_vote
from rejoinder.types import Fate, Judgement, Message, Vote


def user(text: str) -> Message:
    return Message("user", text)


def assistant(text: str) -> Message:
    return Message("assistant", text)


def judgement(score: int | None, *codes: str) -> Judgement:
    votes = tuple(failed_vote(code, "detail") for code in codes)
    why = None if score is not None else Fate.JUDGE_FAILED
    return Judgement(score, votes or (Vote(score),), "fake-1", why)


UNREACHABLE = judgement(None, "unreachable")
TIMED_OUT = judgement(None, "timeout")


class FakeCompleter:
    """Gives the outputs of a script, in order; an exception in it is raised."""

    model_id = "fake at nowhere"
    special_tokens: Sequence[str] = ()

    def __init__(self, *outputs: str | Completion | Exception) -> None:
        self.outputs = list(outputs)
        self.prompts: list[list[Message]] = []

    async def complete(self, messages: Sequence[Message]) -> Completion:
        self.prompts.append(list(messages))
        output = self.outputs.pop(0)
        if isinstance(output, Exception):
            raise output
        return Completion(output, "stop") if isinstance(output, str) else output

    async def close(self) -> None:
        self.outputs.clear()


class FakeJudge:
    """Gives the judgements of a script for each turn; the last one for ever."""

    fingerprint = "fake-1"

    def __init__(self, *script: Judgement | Exception, gate: asyncio.Event | None = None) -> None:
        self.script = list(script)
        self.gate = gate
        self.calls = 0
        self.running = 0
        self.most_running = 0

    async def judge(self, *_: object) -> Judgement:
        self.calls += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(0)
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        finally:
            self.running -= 1
        if isinstance(step, Exception):
            raise step
        return step

    async def check(self) -> None: ...

    async def close(self) -> None: ...


class FakeJournal:
    """A queue in memory; time passes only when a test moves ``now``."""

    def __init__(self, jobs: int = 1, **task: Any) -> None:
        """``task``: what all jobs have otherwise."""
        self.queue = [replace(self._task(f"turn-{number}"), **task) for number in range(jobs)]
        self.held: dict[str, JudgeTask] = {}
        self.commits: list[tuple[str, Judgement | None, SampleSpec | None, Fate | None]] = []
        self.hintless: list[str | None] = []
        """Why each commit had no hint."""
        self.retries: list[tuple[str, float, bool]] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.heartbeats: list[RoleReport] = []
        self.refuses_commits = False
        self.fails_with: Exception | None = None

    @staticmethod
    def _task(turn_id: str, attempt: int = 1) -> JudgeTask:
        question, answer, reply = user("q"), assistant("a"), user("thanks")
        return JudgeTask(
            f"job-{turn_id}", 1, turn_id, "local", "default", attempt, (question,), answer,
            (reply,), b"digest",
        )  # fmt: skip

    def claim_judging(self, owner: str, limit: int, lease_s: float) -> list[JudgeTask]:
        if self.fails_with is not None:
            raise self.fails_with
        tasks, self.queue = self.queue[:limit], self.queue[limit:]
        self.held |= {task.turn_id: task for task in tasks}
        return tasks

    def commit_judgement(
        self,
        task: JudgeTask,
        judgement: Judgement | None,
        sample: SampleSpec | None,
        fate: Fate | None,
        no_hint: str | None = None,
    ) -> bool:
        del self.held[task.turn_id]
        if self.refuses_commits:
            return False
        self.hintless.append(no_hint)
        self.commits.append((task.turn_id, judgement, sample, fate))
        return True

    def retry_judging(
        self, task: JudgeTask, after_s: float, error: str, *, counts: bool = True
    ) -> None:
        del self.held[task.turn_id]
        self.retries.append((task.turn_id, after_s, counts))
        self.queue.append(replace(task, attempt=task.attempt + counts))

    def count(self, role: str, name: str, reason: str, amount: int = 1) -> None:
        assert role == "judge"
        self.counts[name, reason] += amount

    def report(self, report: RoleReport) -> None:
        self.heartbeats.append(report)


class Rule:
    """The signal of the algorithm ``combine``."""

    needs_hints = True

    def sample_spec(self, judgement: Judgement, hints: Sequence[str] = ()) -> SampleSpec | Fate:
        if judgement.score is None and not hints:
            return judgement.why or Fate.JUDGE_FAILED
        if not judgement.score and not hints:
            return Fate.NEUTRAL
        reward = float(judgement.score) if judgement.score else None
        return SampleSpec(reward, tuple(hints))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.002)


class FakeEngine:
    """Scores by a function of the request; only what the likelihood judge calls."""

    def __init__(self, logprob: Callable[[ScoreRequest, int], float]) -> None:
        self._logprob = logprob
        self.requests: list[ScoreRequest] = []
        self.capabilities = ["score", "candidates"]
        self.error: Exception | None = None

    async def info(self) -> EngineInfo:
        return EngineInfo("fake", "hash", 2048, [0], self.capabilities, {}, {})

    async def score(self, request: ScoreRequest) -> ScoreResult:
        if self.error is not None:
            raise self.error
        self.requests.append(request)
        rows = [[self._logprob(request, id_) for id_ in row] for row in request.candidates or []]
        return ScoreResult([], 0, candidates=rows)
