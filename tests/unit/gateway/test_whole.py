"""Whole answers: sampled by the request's own task, which what breaks them off has to reach."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import pytest

from rejoinder.engine.base import GenerateRequest, TokenChunk
from rejoinder.errors import EngineError, EngineTimeout, EngineUnavailable
from rejoinder.gateway import generation
from rejoinder.gateway.errors import ShuttingDown
from rejoinder.gateway.generation import Call, ClientGone
from rejoinder.gateway.whole import WholeGeneration
from rejoinder.types import FinishReason, Sampling

FIRST = TokenChunk([1], [-0.5], 0)
LAST = TokenChunk([2], [-0.5], 0, None, FinishReason.STOP)
Taken = list[tuple[int, list[int]]]


class Engine:
    """Samples what ``answer`` yields, and counts the calls that have ended."""

    def __init__(self, answer: Callable[[], AsyncGenerator[TokenChunk, None]]) -> None:
        self._answer = answer
        self.calls = self.ended = 0

    async def generate(self, _request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        self.calls += 1
        try:
            async for chunk in self._answer():
                yield chunk
        finally:
            self.ended += 1


async def at_once() -> AsyncGenerator[TokenChunk, None]:
    yield FIRST
    yield LAST


async def stuck() -> AsyncGenerator[TokenChunk, None]:
    yield FIRST
    await asyncio.Event().wait()


async def slow_to_close() -> AsyncGenerator[TokenChunk, None]:
    yield FIRST
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.02)


async def _silent() -> Any:
    await asyncio.Event().wait()


def _requests(count: int) -> list[GenerateRequest]:
    return [GenerateRequest(str(one), [1], Sampling(max_tokens=5), "p") for one in range(count)]


async def _sample(
    engine: Any, count: int = 1, receive: Any = _silent, limit_s: float = 30.0, **how: Any
) -> Taken:
    taken: Taken = []

    def take(choice: int, chunk: TokenChunk) -> bool:
        taken.append((choice, chunk.ids))
        return True

    running: set[generation.Generation] = how.get("running", set())
    wait_s = how.get("engine_wait_s", 0.0)
    call = Call(engine, _requests(count), receive, limit_s, wait_s, running)
    async with WholeGeneration(call, take) as whole:
        await whole.sample()
    assert not running
    return taken


async def test_all_chunks_are_taken_in_order():
    engine = Engine(at_once)
    assert await _sample(engine) == [(0, [1]), (0, [2])]
    assert engine.ended == 1


async def test_answers_side_by_side_each_give_their_own():
    taken = await _sample(Engine(at_once), count=3)
    for choice in range(3):
        assert [ids for of, ids in taken if of == choice] == [[1], [2]]


@pytest.mark.parametrize("count", [1, 2])
async def test_an_answer_may_be_ended_before_the_engine_ends_it(count):
    engine = Engine(stuck)
    call = Call(engine, _requests(count), _silent, 30.0, 0.0, set())  # type: ignore[arg-type]
    async with WholeGeneration(call, lambda _choice, _chunk: False) as whole:
        await whole.sample()
    assert engine.ended == count


@pytest.mark.parametrize("count", [1, 2])
async def test_an_answer_breaks_off_when_its_client_has_gone(count):
    async def gone() -> Any:
        return {"type": "http.disconnect"}

    engine = Engine(stuck)
    with pytest.raises(ClientGone):
        await _sample(engine, count, gone)
    assert engine.ended == count


@pytest.mark.parametrize("unwatched_s", [30.0, 0.01], ids=["before it is watched", "while it is"])
@pytest.mark.parametrize("count", [1, 2])
async def test_an_answer_breaks_off_when_its_time_is_over(count, unwatched_s, monkeypatch):
    monkeypatch.setattr(generation, "UNWATCHED_S", unwatched_s)
    engine, limit_s = Engine(stuck), 0.05
    began = time.monotonic()
    with pytest.raises(EngineTimeout, match=f"within {limit_s:g} s"):
        async with asyncio.timeout(10):
            await _sample(engine, count, limit_s=limit_s)
    assert time.monotonic() - began >= limit_s
    assert engine.ended == count


async def test_a_loop_that_was_held_up_gives_an_answer_no_more_time(monkeypatch):
    """Guards against a time that begins when somebody comes to look at it."""
    loop = asyncio.get_running_loop()
    held_up, clock = 0.0, loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + held_up)
    sampling = asyncio.create_task(_sample(Engine(stuck), limit_s=3000.0))
    await asyncio.sleep(0)
    held_up = 2999.9
    with pytest.raises(EngineTimeout):
        async with asyncio.timeout(10):
            await sampling


@pytest.mark.parametrize("count", [1, 2])
async def test_an_answer_breaks_off_when_the_process_ends(count):
    engine, running = Engine(stuck), set[generation.Generation]()
    sampling = asyncio.create_task(_sample(engine, count, running=running))
    await asyncio.sleep(0.01)
    for one in list(running):
        one.end()
    with pytest.raises(ShuttingDown):
        await sampling
    assert engine.ended == count


async def test_nothing_is_asked_for_where_the_process_ends_before():
    engine = Engine(stuck)
    call = Call(engine, _requests(1), _silent, 30.0, 0.0, set())  # type: ignore[arg-type]
    async with WholeGeneration(call, lambda _choice, _chunk: True) as whole:
        whole.end()
        with pytest.raises(ShuttingDown):
            await whole.sample()
    assert not engine.calls


async def test_what_breaks_an_answer_off_leaves_its_task_usable():
    """A cancellation that is not taken back would end the next wait of that task."""

    async def request() -> str:
        with suppress(EngineTimeout):
            await _sample(Engine(stuck), limit_s=0.01)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        await asyncio.sleep(0)
        return "recorded"

    assert await asyncio.create_task(request()) == "recorded"


@pytest.mark.parametrize("count", [1, 2])
async def test_the_first_reason_to_break_off_is_the_one_that_is_told(count):
    """A second one cancels nothing: what closes the engine's call goes on."""
    engine, running = Engine(slow_to_close), set[generation.Generation]()
    leave = asyncio.Event()

    async def gone() -> Any:
        await leave.wait()
        return {"type": "http.disconnect"}

    sampling = asyncio.create_task(_sample(engine, count, gone, running=running))
    await asyncio.sleep(2 * generation.UNWATCHED_S)
    (one,) = running
    one.end()
    leave.set()
    with pytest.raises(ShuttingDown):
        await sampling
    assert engine.ended == count


async def test_a_cancellation_of_long_ago_hides_no_reason():
    async def request() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        await _sample(Engine(stuck), limit_s=0.01)

    with pytest.raises(EngineTimeout):
        await asyncio.create_task(request())


@pytest.mark.parametrize("count", [1, 2])
async def test_whoever_cancels_the_task_still_cancels_it(count):
    engine = Engine(stuck)
    sampling = asyncio.create_task(_sample(engine, count))
    await asyncio.sleep(0.01)
    sampling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sampling
    assert engine.ended == count


async def test_a_cancellation_counts_also_beside_the_end_of_the_time():
    running = set[generation.Generation]()
    sampling = asyncio.create_task(_sample(Engine(stuck), running=running))
    await asyncio.sleep(0.01)
    (one,) = running
    one.end()
    sampling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sampling


async def test_one_failure_ends_the_other_answers():
    calls = iter([EngineError("broken"), None, None])

    async def answer() -> AsyncGenerator[TokenChunk, None]:
        error = next(calls)
        await asyncio.sleep(0.01)
        if error is not None:
            raise error
        yield FIRST
        await asyncio.Event().wait()

    engine = Engine(answer)
    with pytest.raises(EngineError, match="broken"):
        await _sample(engine, count=3)
    assert engine.ended == 3


async def test_of_failures_that_come_together_that_of_the_first_answer_is_told():
    """Guards against another error, and so another status, each time."""
    for _ in range(8):
        names = iter("abcdef")

        async def answer(names: Any = names) -> AsyncGenerator[TokenChunk, None]:
            name = next(names)
            await asyncio.sleep(0)
            raise EngineError(name)
            yield FIRST

        with pytest.raises(EngineError, match="a"):
            await _sample(Engine(answer), count=6)


async def test_an_answer_without_an_end_is_a_failure():
    async def cut() -> AsyncGenerator[TokenChunk, None]:
        yield FIRST

    with pytest.raises(EngineError, match="without a reason"):
        await _sample(Engine(cut))


async def test_an_engine_that_is_away_is_asked_anew_before_its_first_token(monkeypatch):
    monkeypatch.setattr(generation, "RETRY_S", 0.01)

    async def back() -> AsyncGenerator[TokenChunk, None]:
        if engine.calls < 3:
            raise EngineUnavailable("away")
        yield LAST

    engine, began = Engine(back), time.monotonic()
    assert await _sample(engine, engine_wait_s=5.0) == [(0, [2])]
    assert time.monotonic() - began >= 2 * generation.RETRY_S
    engine.calls = 0
    with pytest.raises(EngineUnavailable):
        await _sample(engine, engine_wait_s=0.0)


async def test_an_answer_that_has_begun_is_not_asked_for_again():
    async def breaks() -> AsyncGenerator[TokenChunk, None]:
        yield FIRST
        raise EngineUnavailable("away")

    engine = Engine(breaks)
    with pytest.raises(EngineUnavailable):
        await _sample(engine, engine_wait_s=5.0)
    assert engine.calls == 1


async def test_nobody_watches_an_answer_that_has_ended(monkeypatch):
    monkeypatch.setattr(generation, "UNWATCHED_S", 0.01)
    watched, left = asyncio.Event(), asyncio.Event()

    async def receive() -> Any:
        watched.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    async def seen() -> AsyncGenerator[TokenChunk, None]:
        await watched.wait()
        yield LAST

    await _sample(Engine(seen), receive=receive)
    async with asyncio.timeout(5):
        await left.wait()


async def test_nobody_watches_an_answer_that_comes_at_once():
    asked = 0

    async def receive() -> Any:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()

    await _sample(Engine(at_once), receive=receive)
    await asyncio.sleep(2 * generation.UNWATCHED_S)
    assert not asked
