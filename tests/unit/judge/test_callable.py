"""Judges that are Python functions."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from judge_fakes import assistant, user
from rejoinder.config import CallableJudgeConfig
from rejoinder.errors import ConfigError
from rejoinder.judge.callable import CallableJudge, build
from rejoinder.judge.voting import failure_code, nothing_was_tried
from rejoinder.types import Fate, Judgement


async def judged(scorer: object, timeout_s: float = 5.0) -> Judgement:
    judge = CallableJudge(scorer, "tests:scorer", timeout_s)
    return await judge.judge([user("q")], assistant("answer"), [user("thanks")])


async def test_a_function_sees_context_answer_and_next_state() -> None:
    seen = []

    def scorer(*arguments: object) -> int:
        seen.append(arguments)
        return 1

    assert (await judged(scorer)).score == 1
    assert seen == [([user("q")], assistant("answer"), [user("thanks")])]


async def test_an_async_function_is_awaited() -> None:
    async def scorer(*_: object) -> int:
        await asyncio.sleep(0)
        return -1

    assert (await judged(scorer)).score == -1


async def test_zero_is_a_neutral_verdict_and_none_is_no_verdict() -> None:
    assert (await judged(lambda *_: 0)).score == 0
    nothing = await judged(lambda *_: None)
    assert (nothing.score, nothing.why) == (None, Fate.JUDGE_UNSURE)


async def test_an_exception_is_a_failed_vote_that_names_it() -> None:
    def scorer(*_: object) -> int:
        raise KeyError("answer")

    judgement = await judged(scorer)
    assert judgement.score is None
    assert judgement.votes[0].reason == "exception: KeyError: 'answer'"


@pytest.mark.parametrize("raised", [KeyError("x" * 100_000), SystemExit(3)])
async def test_regression_the_log_says_where_a_function_raised_and_stays_short(raised) -> None:
    def scorer(*_: object) -> int:
        raise raised

    with capture_logs() as logged:
        await judged(scorer)
    (entry,) = logged
    assert (entry["log_level"], entry["target"]) == ("warning", "tests:scorer")
    line = scorer.__code__.co_firstlineno + 1
    assert f'File "{__file__}", line {line}, in scorer' in entry["exception"]
    assert type(raised).__name__ in entry["exception"]
    assert len(entry["exception"]) <= 4000


@pytest.mark.parametrize("value", [2, 0.5, "1", True, [1]])
async def test_other_values_are_failed_votes(value: object) -> None:
    judgement = await judged(lambda *_: value)
    assert failure_code(judgement.votes[0]) == "bad_score"


async def test_a_function_that_hangs_is_a_failed_vote_and_blocks_nobody() -> None:
    judgement = await judged(lambda *_: time.sleep(0.3), timeout_s=0.02)
    assert failure_code(judgement.votes[0]) == "timeout"


async def test_regression_calls_that_never_return_leave_the_event_loops_threads_alone() -> None:
    gate = threading.Event()
    judge = CallableJudge(lambda *_: gate.wait() and 1, "m:f", 0.01, concurrency=1)
    votes = []
    try:
        for _ in range(60):  # more than the event loop has threads
            outcome = await judge.judge([user("q")], assistant("a"), [user("r")])
            votes.append(outcome.votes[0])
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 10) == "free"
    finally:
        gate.set()
    assert {failure_code(vote) for vote in votes} == {"timeout", "busy"}
    assert nothing_was_tried(outcome)
    assert re.search(r"\d+ calls of m:f have not returned", votes[-1].reason)


async def test_a_judge_with_hanging_calls_goes_on_when_they_return() -> None:
    gate = threading.Event()
    judge = CallableJudge(lambda *_: gate.wait() and 1, "m:f", 0.01)
    turn = ([user("q")], assistant("a"), [user("r")])
    while failure_code((await judge.judge(*turn)).votes[0]) != "busy":
        pass
    gate.set()
    async with asyncio.timeout(10):
        while (await judge.judge(*turn)).score != 1:  # noqa: ASYNC110 - any of the calls
            await asyncio.sleep(0.01)


async def test_a_function_that_exits_is_a_failed_vote_and_does_not_end_the_judge() -> None:
    judgement = await judged(lambda *_: sys.exit(3))
    assert judgement.votes[0].reason == "exception: RuntimeError: SystemExit(3)"


def test_regression_a_process_ends_while_a_call_still_hangs() -> None:
    program = """
import asyncio, threading
from rejoinder.judge.callable import CallableJudge
from rejoinder.types import Message
judge = CallableJudge(lambda *_: threading.Event().wait(), "m:f", 0.01)
asyncio.run(judge.judge([], Message("assistant", "a"), [Message("user", "r")]))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_fingerprint_changes_with_the_functions_source() -> None:
    def lenient(*_: object) -> int:
        return 1

    def strict(*_: object) -> int:
        return -1

    prints = {CallableJudge(f, "m:f", 1.0).fingerprint for f in (lenient, strict, lenient)}
    assert len(prints) == 2


@pytest.mark.parametrize("target", ["no_such_module:f", "judge_target:missing", "judge_target:x"])
def test_a_target_that_cannot_be_called_is_refused(target: str, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "judge_target", SimpleNamespace(x=3))
    with pytest.raises(ConfigError, match=r"judge\.target"):
        build(SimpleNamespace(config=CallableJudgeConfig(target=target)))


async def test_regression_a_target_may_be_a_method_or_lie_in_a_class(monkeypatch) -> None:
    inner = SimpleNamespace(score=lambda *_: -1)
    monkeypatch.setitem(sys.modules, "judge_target", SimpleNamespace(rules=inner))
    config = CallableJudgeConfig(target="judge_target:rules.score")
    judge = build(SimpleNamespace(config=config))
    assert (await judge.judge([user("q")], assistant("a"), [user("r")])).score == -1


@pytest.mark.parametrize(
    "target", [".:f", "a.:f", "a..b:f", "a:.f", "a:f.", "a:b..c", "a", "a:b:c"]
)
def test_a_target_that_names_nothing_is_refused_by_the_configuration(target: str) -> None:
    with pytest.raises(ValidationError):
        CallableJudgeConfig(target=target)


async def test_regression_a_value_that_cannot_be_compared_is_a_failed_vote() -> None:
    judgement = await judged(lambda *_: np.array([1, 0]))
    assert failure_code(judgement.votes[0]) == "exception"
    assert (await judged(lambda *_: np.float32(-1))).score == -1
