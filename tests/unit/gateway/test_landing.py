"""Futures of the journal's thread as futures of the event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future

import pytest

from rejoinder.errors import JournalError
from rejoinder.gateway.landing import Landings


async def settled() -> None:
    """Let what has been handed over reach the loop; nothing may go wrong there."""
    loop = asyncio.get_running_loop()
    wrong: list[object] = []
    loop.set_exception_handler(lambda _loop, context: wrong.append(context))
    done = loop.create_future()
    loop.call_soon_threadsafe(done.set_result, None)
    await done
    loop.set_exception_handler(None)
    assert wrong == []


async def test_what_a_thread_has_written_lands_with_its_failures():
    landings = Landings()
    futures: list[Future[None]] = [Future() for _ in range(3)]
    landing = [landings.of(future, 10) for future in futures]

    def write() -> None:
        futures[1].set_exception(JournalError("full"))
        for at in (0, 2):
            futures[at].set_result(None)

    thread = threading.Thread(target=write)
    thread.start()
    found = await asyncio.gather(*landing, return_exceptions=True)
    thread.join()
    assert found[0] is None
    assert found[2] is None
    assert isinstance(found[1], JournalError)


async def test_many_that_land_while_the_loop_is_busy_wake_it_once(monkeypatch):
    loop = asyncio.get_running_loop()
    calls = []
    call = loop.call_soon_threadsafe
    monkeypatch.setattr(
        loop, "call_soon_threadsafe", lambda *a, **k: (calls.append(a), call(*a, **k))[1]
    )
    landings = Landings()
    futures: list[Future[None]] = [Future() for _ in range(20)]
    landing = [landings.of(future, 10) for future in futures]
    for future in futures:
        future.set_result(None)
    await asyncio.gather(*landing)
    assert len(calls) == 1


async def test_one_that_is_done_already_lands():
    future: Future[None] = Future()
    future.set_result(None)
    assert await Landings().of(future, 10) is None


async def test_one_that_does_not_come_in_time_fails_and_may_still_come():
    landings = Landings()
    future: Future[None] = Future()
    with pytest.raises(TimeoutError):
        await landings.of(future, 0.01)
    future.set_result(None)
    await settled()


async def test_cancelling_lets_the_write_go_on():
    landings = Landings()
    future: Future[None] = Future()
    landing = landings.of(future, 10)
    landing.cancel()
    assert future.set_running_or_notify_cancel()
    future.set_result(None)
    await settled()


async def test_a_write_that_was_cancelled_fails_alone():
    landings = Landings()
    futures: list[Future[None]] = [Future() for _ in range(3)]
    landing = [landings.of(future, 10) for future in futures]
    futures[0].cancel()
    for future in futures[1:]:
        future.set_result(None)
    first, *others = await asyncio.gather(*landing, return_exceptions=True)
    assert isinstance(first, CancelledError)
    assert others == [None, None]


def test_what_lands_when_its_loop_is_closed_keeps_nothing_from_another():
    landings, late, write = Landings(), Future[None](), Future[None]()

    async def leave() -> None:
        landings.of(late, 10)

    async def wait() -> None:
        landing = landings.of(write, 1)
        write.set_result(None)
        await landing

    asyncio.run(leave())
    late.set_result(None)
    asyncio.run(wait())
