"""The judging loop against a journal in memory."""

from __future__ import annotations

import asyncio
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from judge_fakes import TIMED_OUT, UNREACHABLE, FakeJournal, FakeJudge, Rule, judgement, until
from rejoinder.journal.records import SampleSpec
from rejoinder.judge import loop as loop_module
from rejoinder.judge.callable import CallableJudge
from rejoinder.judge.loop import JudgeLoop, LoopLimits
from rejoinder.types import Fate, Judgement, Vote


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "_POLL_S", 0.005)
    monkeypatch.setattr(loop_module, "_REPORT_S", 0.01)
    monkeypatch.setattr(loop_module, "_LONGEST_PAUSE_S", 0.01)


@asynccontextmanager
async def working(
    journal: FakeJournal, judge: FakeJudge, concurrency: int = 2, deadline_s: float = 5.0
):
    stop = asyncio.Event()
    limits = LoopLimits(concurrency, deadline_s, attempts=3)
    loop = JudgeLoop(journal, judge, Rule(), limits, external=["judge.example.org"])
    task = asyncio.create_task(loop.run(stop))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait([task])
    if not task.cancelled() and task.exception():
        raise task.exception()


@pytest.mark.parametrize(
    ("score", "sample", "fate"),
    [(1, SampleSpec(1.0), None), (-1, SampleSpec(-1.0), None), (0, None, Fate.NEUTRAL)],
)
async def test_a_verdict_is_committed_with_what_the_algorithm_makes_of_it(
    score: int, sample: SampleSpec | None, fate: Fate | None
) -> None:
    journal = FakeJournal()
    async with working(journal, FakeJudge(judgement(score))):
        await until(lambda: journal.commits)
    assert journal.commits == [("turn-0", judgement(score), sample, fate)]


async def test_no_verdict_is_committed_without_a_sample_and_with_its_reason() -> None:
    unsure = Judgement(None, (Vote(None, "unsure", 0.01),), "fake-1", Fate.JUDGE_UNSURE)
    journal = FakeJournal()
    async with working(journal, FakeJudge(unsure)):
        await until(lambda: journal.commits)
    assert journal.commits == [("turn-0", unsure, None, Fate.JUDGE_UNSURE)]
    assert not journal.counts


async def test_regression_a_function_that_returns_none_is_asked_once_and_is_no_error() -> None:
    journal, calls = FakeJournal(), []
    async with working(journal, CallableJudge(lambda *_: calls.append(1), "m:f", 5.0)):
        await until(lambda: journal.commits)
    ((turn, _, sample, fate),) = journal.commits
    assert (turn, sample, fate) == ("turn-0", None, Fate.JUDGE_UNSURE)
    assert len(calls) == 1
    assert not journal.retries
    assert not journal.counts
    assert journal.heartbeats[-1].last_error is None


async def test_failed_calls_are_tried_again_later_and_then_end_as_no_verdict() -> None:
    journal, judge = FakeJournal(), FakeJudge(TIMED_OUT)
    async with working(journal, judge):
        await until(lambda: journal.commits)
    assert journal.retries == [("turn-0", 1.0, True), ("turn-0", 2.0, True)]
    assert judge.calls == 3
    assert journal.commits == [("turn-0", TIMED_OUT, None, Fate.JUDGE_FAILED)]


async def test_each_failed_call_is_counted_by_its_reason() -> None:
    journal = FakeJournal()
    script = [judgement(None, "http_401", "http_401", "timeout"), judgement(1)]
    async with working(journal, FakeJudge(*script)):
        await until(lambda: journal.commits)
    assert journal.counts == {("failed_calls", "http_401"): 2, ("failed_calls", "timeout"): 1}


async def test_regression_a_refused_key_shows_as_the_last_error() -> None:
    journal = FakeJournal()
    async with working(journal, FakeJudge(judgement(None, "http_401"))):
        await until(lambda: any(beat.last_error for beat in journal.heartbeats))
    assert journal.heartbeats[-1].last_error == "http_401: detail"


async def test_regression_an_engine_that_was_loading_at_the_start_is_no_last_error() -> None:
    journal, stop = FakeJournal(jobs=0), asyncio.Event()
    loop = JudgeLoop(journal, FakeJudge(judgement(1)), Rule(), LoopLimits(1, 5.0, attempts=3))
    loop.report_start("waiting", "the engine is loading its model")
    assert journal.heartbeats[-1].last_error == "the engine is loading its model"
    stop.set()
    await loop.run(stop)
    assert journal.heartbeats[-1].last_error is None


async def test_no_attempt_is_used_up_while_the_engine_is_away() -> None:
    journal = FakeJournal()
    away = [UNREACHABLE] * 6
    async with working(journal, FakeJudge(*away, judgement(1))):
        await until(lambda: journal.commits)
    assert journal.retries == [("turn-0", 0.0, False)] * 6
    assert journal.commits[0][1].score == 1


async def test_an_overloaded_endpoint_uses_up_no_attempt_and_is_asked_about_another_job_next() -> (
    None
):
    journal = FakeJournal()
    async with working(journal, FakeJudge(judgement(None, "http_503"), judgement(1))):
        await until(lambda: journal.commits)
    ((_, after_s, counts),) = journal.retries
    assert after_s > 0
    assert not counts


async def test_an_engine_that_is_away_is_asked_for_one_job_at_a_time() -> None:
    journal, judge = FakeJournal(jobs=8), FakeJudge(*[UNREACHABLE] * 12, judgement(1))
    async with working(journal, judge, concurrency=4):
        await until(lambda: any(beat.state == "waiting" for beat in journal.heartbeats))
        judge.most_running = 0
        await until(lambda: len(judge.script) < 5)
        assert judge.most_running == 1
        await until(lambda: len(journal.commits) == 8)


async def test_no_more_than_the_configured_number_is_judged_at_once() -> None:
    gate = asyncio.Event()
    journal, judge = FakeJournal(jobs=6), FakeJudge(judgement(1), gate=gate)
    async with working(journal, judge, concurrency=3):
        await until(lambda: judge.running == 3)
        await asyncio.sleep(0.02)
        assert judge.most_running == 3
        gate.set()
        await until(lambda: len(journal.commits) == 6)


async def test_stopping_gives_jobs_in_flight_back_untried() -> None:
    journal, judge = FakeJournal(jobs=3), FakeJudge(judgement(1), gate=asyncio.Event())
    async with working(journal, judge):
        await until(lambda: judge.running == 2)
    assert journal.held == {}
    assert [(after, counts) for _, after, counts in journal.retries] == [(0.0, False)] * 2
    assert journal.heartbeats[-1].state == "stopped"


async def test_a_judge_that_raises_has_failed_and_the_loop_goes_on() -> None:
    journal, judge = FakeJournal(jobs=2), FakeJudge(ValueError("plugin bug"), judgement(1))
    async with working(journal, judge, concurrency=1):
        await until(lambda: len(journal.commits) == 2)
    assert journal.counts == {("failed_calls", "exception"): 1}


async def test_a_judge_that_raises_before_it_awaits_is_a_failed_call_too() -> None:
    judge = FakeJudge(judgement(1))

    def broken(*_: object) -> None:
        raise RuntimeError("not even a coroutine")

    judge.judge = broken  # type: ignore[method-assign, assignment]
    journal = FakeJournal()
    async with working(journal, judge):
        await until(lambda: journal.retries)
    assert journal.counts["failed_calls", "exception"] >= 1


@pytest.mark.parametrize(
    ("returned", "code"),
    [
        (Judgement(2, (Vote(2),), "fake-1"), "bad_score"),
        (Judgement(True, (Vote(1),), "fake-1"), "bad_score"),
        (Judgement(1, (Vote(7),), "fake-1"), "bad_score"),
        (Judgement(1, (Vote(1),), "fake-1", Fate.JUDGE_UNSURE), "bad_score"),
        (Judgement(1, (Vote(1),), "fake-1", "fine"), "bad_score"),
        (Judgement(None, (Vote(None),), "fake-1"), "bad_score"),
        (Judgement(1, (1,), "fake-1"), "bad_judgement"),
        (Judgement(1, 1, "fake-1"), "bad_judgement"),
        (Judgement(1, (Vote(1),), None), "bad_judgement"),
        (Judgement(1, (Vote(1),), "fake-1", None, math.nan), "bad_judgement"),
        (1, "bad_judgement"),
        (Vote(1), "bad_judgement"),
    ],
)
async def test_regression_what_is_no_judgement_is_a_counted_failure_and_never_a_sample(
    returned: object, code: str
) -> None:
    journal = FakeJournal()
    async with working(journal, FakeJudge(returned)):
        await until(lambda: journal.commits)
    assert journal.counts == {("failed_calls", code): 3}
    assert journal.commits[0][1].score is None
    assert journal.commits[0][2:] == (None, Fate.JUDGE_FAILED)
    assert journal.heartbeats[-1].last_error.startswith(code)


async def test_regression_a_job_that_each_attempt_died_of_is_not_judged_again() -> None:
    journal, judge = FakeJournal(), FakeJudge(judgement(1))
    journal.queue = [replace(journal.queue[0], attempt=4)]
    async with working(journal, judge):
        await until(lambda: journal.commits)
    assert judge.calls == 0
    (vote,) = journal.commits[0][1].votes
    assert vote.reason == "died: the judge died each time, 3 times"
    assert journal.commits[0][2:] == (None, Fate.JUDGE_FAILED)
    assert journal.counts == {("failed_calls", "died"): 1}


async def test_the_last_attempt_is_still_judged() -> None:
    journal = FakeJournal()
    journal.queue = [replace(journal.queue[0], attempt=3)]
    async with working(journal, FakeJudge(judgement(1))):
        await until(lambda: journal.commits)
    assert journal.commits[0][1].score == 1


async def test_a_job_that_cannot_be_read_fails_alone_and_never_reaches_the_judge() -> None:
    journal, judge = FakeJournal(jobs=2), FakeJudge(judgement(1))
    journal.queue[0] = replace(journal.queue[0], unreadable="JournalError: content is missing")
    async with working(journal, judge):
        await until(lambda: len(journal.commits) == 2)
    assert judge.calls == 1
    fates = {turn: fate for turn, _, _, fate in journal.commits}
    assert fates == {"turn-0": Fate.JUDGE_FAILED, "turn-1": None}
    assert journal.counts == {("failed_calls", "unreadable"): 3}


async def test_a_judgement_that_takes_too_long_is_a_failed_attempt() -> None:
    journal = FakeJournal()
    hanging = FakeJudge(judgement(1), gate=asyncio.Event())
    async with working(journal, hanging, deadline_s=0.01):
        await until(lambda: journal.commits)
    assert journal.commits[0][3] is Fate.JUDGE_FAILED
    assert journal.counts == {("failed_calls", "timeout"): 3}


async def test_regression_a_judge_that_fills_the_event_loops_threads_stops_no_commit() -> None:
    gate, journal = threading.Event(), FakeJournal(jobs=2)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    stuck = asyncio.create_task(asyncio.to_thread(gate.wait))
    try:
        async with working(journal, FakeJudge(judgement(1))):
            await until(lambda: len(journal.commits) == 2)
    finally:
        gate.set()
        await stuck


async def test_a_judge_that_is_full_says_so_and_uses_up_no_attempt() -> None:
    journal, gate = FakeJournal(jobs=12), threading.Event()
    hanging = CallableJudge(lambda *_: gate.wait() and 1, "m:f", 0.005, concurrency=2)
    try:
        async with working(journal, hanging):
            await until(lambda: journal.counts["failed_calls", "busy"])
            await until(lambda: journal.heartbeats[-1].state == "waiting")
            assert "calls of m:f have not returned" in str(journal.heartbeats[-1].last_error)
    finally:
        gate.set()
    assert (0.0, False) in [(after, counts) for _, after, counts in journal.retries]


async def test_a_commit_that_came_too_late_is_counted() -> None:
    journal = FakeJournal()
    journal.refuses_commits = True
    async with working(journal, FakeJudge(judgement(1))):
        await until(lambda: journal.counts)
    assert journal.counts == {("refused_commits", "outdated"): 1}
    assert journal.heartbeats[-1].detail["verdicts"]["good"] == 0


async def test_a_broken_journal_ends_the_loop_with_its_error() -> None:
    journal = FakeJournal()
    journal.fails_with = RuntimeError("disk full")
    with pytest.raises(RuntimeError, match="disk full"):
        async with working(journal, FakeJudge(judgement(1))) as task:
            await asyncio.wait([task])


async def test_the_heartbeat_says_what_was_judged_and_where_conversations_go() -> None:
    journal = FakeJournal(jobs=2)
    async with working(journal, FakeJudge(judgement(-1), judgement(1)), concurrency=1):
        await until(lambda: len(journal.commits) == 2)
    detail = journal.heartbeats[-1].detail
    assert detail["verdicts"] == {"good": 1, "bad": 1, "neutral": 0, "none": 0}
    assert detail["external"] == ["judge.example.org"]
    assert detail["fingerprint"] == "fake-1"


def test_a_lease_outlives_the_longest_judgement() -> None:
    limits = LoopLimits(concurrency=1, deadline_s=180.0, attempts=4)
    assert limits.lease_s > limits.deadline_s
