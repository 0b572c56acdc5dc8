"""Threads that callers take turns at: one who asks for much delays its own work only."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_Result = TypeVar("_Result")


class FairThreads(Generic[_Result]):
    """A few threads with a queue for each caller. Used from any thread."""

    def __init__(self, count: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(count, name)
        self._lock = threading.Lock()
        self._queues: OrderedDict[str, deque[tuple[Future[_Result], Callable[[], _Result]]]] = (
            OrderedDict()
        )
        """Of callers that wait; the one whose turn it is comes first."""

    def submit(self, caller: str, job: Callable[[], _Result]) -> Future[_Result]:
        """Run a job when its caller's turn has come; until then it can be cancelled.

        Raises:
            RuntimeError: ``close`` has been called.
        """
        future: Future[_Result] = Future()
        with self._lock:
            self._threads.submit(self._one)
            self._queues.setdefault(caller, deque()).append((future, job))
        return future

    def close(self) -> None:
        """Take no more jobs; those that wait are still run."""
        self._threads.shutdown(wait=False)

    def _one(self) -> None:
        """Run the next job; there are as many calls as jobs."""
        future, job = self._next()
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(job())
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            future.set_exception(error)

    def _next(self) -> tuple[Future[_Result], Callable[[], _Result]]:
        with self._lock:
            caller, queue = self._queues.popitem(last=False)
            found = queue.popleft()
            if queue:
                self._queues[caller] = queue  # behind the others
        return found
