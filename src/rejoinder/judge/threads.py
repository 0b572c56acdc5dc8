"""Threads for functions that may never return: own, capped, and never waited for at exit."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any


class ThreadsExhausted(Exception):
    """As many calls as are allowed have not returned. Expected, hence no ``RejoinderError``."""


class DaemonThreads:
    """Runs each call in a new thread; a call that is given up keeps its thread until it returns.

    The event loop's own threads are no place for foreign code: there are few, everything else in
    the process needs them too, and the interpreter waits for them when it exits.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._running = 0
        self._lock = threading.Lock()

    @property
    def running(self) -> int:
        """Calls that have not returned, those given up included."""
        return self._running

    async def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Return what the function returns; cancelling gives the call up.

        Raises:
            ThreadsExhausted: the limit is reached; nothing was called.
            Exception: what the function raised.
        """
        with self._lock:
            if self._running >= self.limit:
                raise ThreadsExhausted
            self._running += 1
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[tuple[Any, Exception | None]] = loop.create_future()
        context = contextvars.copy_context()

        def run() -> None:
            value, raised = None, None
            try:
                value = context.run(function, *arguments)
            except Exception as error:  # noqa: BLE001 - foreign code; handed to who waits
                raised = error
            except BaseException as error:  # noqa: BLE001 - sys.exit() is no reason to end the judge
                raised = RuntimeError(repr(error))
                raised.__cause__ = error  # its traceback says where
            finally:
                with self._lock:
                    self._running -= 1
            try:
                loop.call_soon_threadsafe(_settle, outcome, value, raised)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

        try:
            threading.Thread(target=run, name="judge-call", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            with self._lock:
                self._running -= 1
            raise ThreadsExhausted from error
        value, raised = await outcome
        if raised is not None:
            raise raised
        return value


def _settle(
    outcome: asyncio.Future[tuple[Any, Exception | None]], value: object, raised: Exception | None
) -> None:
    if not outcome.done():  # cancelled: the call was given up
        outcome.set_result((value, raised))
