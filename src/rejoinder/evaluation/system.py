"""The real system for the time of a run: four roles as processes, watched and restarted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rejoinder.config import Config
from rejoinder.launch.system import LocalSystem

WATCH_EVERY_S = 0.3

_Result = TypeVar("_Result")


async def with_system(
    config: Config,
    work: Callable[[LocalSystem], Awaitable[_Result]],
    stopping: Callable[[], None] = lambda: None,
) -> _Result:
    """Start all roles, do the work while they are watched, and stop them whatever happens.

    Args:
        config: ports of 0 are bound to free ones; the system's own configuration tells which.
        work: gets the ready system.
        stopping: called before its roles are stopped: one that compiles or trains does not let go
            at once.

    Raises:
        RejoinderError: a role cannot start, or keeps ending.
    """
    with LocalSystem(config) as system:
        try:
            return await _in_system(system, work)
        finally:
            stopping()


async def _in_system(
    system: LocalSystem, work: Callable[[LocalSystem], Awaitable[_Result]]
) -> _Result:
    leaving = threading.Event()
    # Not in a thread: a cancelled start would go on behind our back and leave roles running.
    system.start()
    try:
        # A live view has the terminal: what the start waits for is not told.
        await asyncio.to_thread(
            system.wait_until_ready, lambda _: None, lambda: not leaving.is_set()
        )
    finally:
        leaving.set()
    working = asyncio.ensure_future(work(system))
    watching = asyncio.create_task(_watch(system))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()  # raises what keeps the system from going on
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _watch(system: LocalSystem) -> None:
    while True:
        system.watch()
        await asyncio.sleep(WATCH_EVERY_S)
