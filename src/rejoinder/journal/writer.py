"""Group commit: one thread per process writes for all callers.

Whoever wants something written queues it and may wait for its future. The thread takes what has
come together, applies it in one transaction of about ten milliseconds and commits once, so that a
hundred answers cost one flush. A failing write fails its own future only.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from rejoinder.errors import JournalError
from rejoinder.journal.checkpointing import Checkpointer
from rejoinder.journal.database import Database, in_transaction, run

T = TypeVar("T")
log = logging.getLogger(__name__)

QUEUE_LIMIT = 10_000
"""Writes that may wait; beyond this the disk cannot follow and callers get an error."""
TARGET_S = 0.010
"""Length of a transaction that the batch size is steered to."""
SMALLEST, LARGEST = 8, 512
"""Bounds of the batch size, in writes."""
LINGER_S = 0.02
"""How long writes that nobody waits for may wait for one that somebody does: then one flush serves
both. An answer that comes at once needs one instead of two."""
LOCKED_S = 60.0
"""How long a lock held by another process is waited for before writes fail."""


class Group(Protocol):
    """Collects frequent writes and applies them with a few statements.

    The order of the statements must give the same rows as one write after the other.
    """

    def add(self, item: Any) -> None:
        """Take one more item."""
        ...

    def apply(self, connection: Connection) -> None:
        """Write all of them; called once."""
        ...


@dataclass(slots=True, eq=False)
class _Write:
    item: Any
    call: Callable[[Connection], Any] | None
    future: Future[Any] | None
    done: Callable[[bool], None] | None
    hurries: bool = True
    """Somebody waits for it."""
    result: Any = None
    error: Exception | None = None


class Writer:
    """The process's only writing connection and its thread."""

    def __init__(
        self,
        database: Database,
        new_group: Callable[[], Group],
        forget: Callable[[Any], None],
        explain: Callable[[Connection, Any, JournalError], JournalError],
        queue_limit: int = QUEUE_LIMIT,
    ) -> None:
        """``forget`` drops what a group remembers in memory of an item that was not written.

        ``explain`` is told why an item was not, and may know a cause before that.
        """
        self._database = database
        self._new_group = new_group
        self._forget = forget
        self._explain = explain
        self._queue_limit = queue_limit
        self._queue: deque[_Write] = deque()
        self._wake = threading.Condition()
        self._hurrying = 0
        """Queued writes that somebody waits for."""
        self._since = 0.0
        """When the oldest queued write came."""
        self._asleep = False
        """The thread has to be woken for any write, and not only for one that hurries."""
        self._closing = False
        self._size = 64
        self._connection = database.connect()
        self._checkpointer = Checkpointer(database)
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)
        self._thread.start()

    # --- for callers --------------------------------------------------------------------------

    def add(self, item: Any, done: Callable[[bool], None] | None = None) -> None:
        """Queue an item for the group; nobody waits. ``done`` runs in the writer's thread."""
        self._put(_Write(item, None, None, done, hurries=False))

    def add_durable(self, item: Any, *, hurries: bool = True) -> Future[None]:
        """Queue an item for the group; the future resolves after the commit.

        ``hurries``: somebody waits for that.
        """
        future: Future[None] = Future()
        self._put(_Write(item, None, future, None, hurries=hurries))
        return future

    def submit(self, call: Callable[[Connection], T], *, hurries: bool = True) -> Future[T]:
        """Queue a function of the write connection; it runs once or more, in a savepoint.

        ``hurries``: as in ``add_durable``.
        """
        future: Future[T] = Future()
        self._put(_Write(None, call, future, None, hurries=hurries))
        return future

    def call(self, call: Callable[[Connection], T]) -> T:
        """Run a function in the writer's transaction and wait until it is durable."""
        return self.submit(call).result()

    def flush(self) -> None:
        """Return when everything queued before is durable or has failed."""
        future: Future[None] = Future()
        self._put(_Write(None, lambda _connection: None, future, None), bounded=False)
        future.result()

    def close(self) -> None:
        """Write what is queued, then stop. Later writes are refused."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()
        self._checkpointer.close()
        self._connection.close()

    @property
    def backlog(self) -> int:
        """Writes that wait now."""
        return len(self._queue)

    def _put(self, write: _Write, *, bounded: bool = True) -> None:
        with self._wake:
            if self._closing:
                raise JournalError("the journal is closed")
            if bounded and len(self._queue) >= self._queue_limit:
                raise JournalError(
                    f"{len(self._queue)} writes wait for the journal's disk: retry later, or put "
                    "journal.url on a faster disk"
                )
            if not self._queue:
                self._since = time.monotonic()
            self._queue.append(write)
            self._hurrying += write.hurries
            if self._asleep or (write.hurries and self._hurrying == 1):
                self._asleep = False
                self._wake.notify()

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        batch: list[_Write] | None = []
        try:
            while (batch := self._take()) is not None:
                if batch:
                    self._checkpointer.wanted()
                    if self._database.lost is None:
                        self._write(batch)
                    else:
                        self._refuse(batch, self._database.lost)
                    for write in batch:
                        _resolve(write)
        except BaseException as error:  # nobody may wait for a thread that has ended
            log.exception("the journal's writer has failed")
            self._fail_all(batch or [], error)

    def _refuse(self, batch: Sequence[_Write], why: str) -> None:
        """Write nothing where nobody would find it."""
        for write in batch:
            write.error = JournalError(why)
            if write.item is not None:  # its answer may come when the file is back in its place
                write.error = self._explain(self._connection, write.item, write.error)
                self._forget(write.item)

    def _fail_all(self, batch: Sequence[_Write], error: BaseException) -> None:
        with self._wake:
            self._closing = True
            waiting = [*batch, *self._queue]
            self._queue.clear()
        for write in waiting:
            if write.future is not None and not write.future.done():
                write.future.set_exception(JournalError(f"the journal's writer failed: {error}"))

    def _take(self) -> list[_Write] | None:
        """Wait for writes. [] after a quiet second, None when closed and empty."""
        with self._wake:
            self._linger()
            if not self._queue and not self._closing:
                self._asleep = True
                self._wake.wait(timeout=1.0)
                self._asleep = False
            if not self._queue:
                return None if self._closing else []
            self._linger()
            count = min(self._size, len(self._queue))
            taken = [self._queue.popleft() for _ in range(count)]
            self._hurrying -= sum(write.hurries for write in taken)
            return taken

    def _linger(self) -> None:
        """Wait a moment for company while nobody waits for what is queued.

        Also for the first of it: while turns follow each other, their opening then wakes no
        thread, which would take the interpreter from whoever goes on with the request.
        """
        begun = time.monotonic()
        while not (self._hurrying or self._closing or len(self._queue) >= self._size):
            left = (self._since if self._queue else begun) + LINGER_S - time.monotonic()
            if left <= 0:
                return
            self._wake.wait(left)

    def _steer(self, count: int, seconds: float) -> None:
        """Adapt the batch size; the flush is left out, as a smaller batch would not shorten it."""
        if seconds > TARGET_S:
            self._size = max(SMALLEST, self._size // 2)
        elif count == self._size and seconds < TARGET_S / 2:
            self._size = min(LARGEST, self._size * 2)

    def _write(self, batch: Sequence[_Write]) -> None:
        """Try all at once; if the group fails, one by one, so that only the culprit fails."""
        try:
            parts = self._prepare(batch)
            self._begin()
            started = time.perf_counter()
            self._apply(parts)
            self._steer(len(batch), time.perf_counter() - started)
            run(self._connection, "COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it is, each write is tried alone next
            self._rollback()
            log.debug("batch of %d writes is repeated one by one: %s", len(batch), error)
            self._write_one_by_one(batch)

    def _write_one_by_one(self, batch: Sequence[_Write]) -> None:
        for write in batch:
            if write.item is not None:
                self._forget(write.item)
        for write in batch:
            write.result = write.error = None
            try:
                parts = self._prepare([write])
                self._begin()
                self._apply(parts)
                run(self._connection, "COMMIT")
            except Exception as error:  # noqa: BLE001 - handed to whoever waits for this write
                self._rollback()
                write.error = _explain(error)
                if write.item is not None:
                    write.error = self._explain(self._connection, write.item, write.error)
                    self._forget(write.item)

    def _prepare(self, batch: Sequence[_Write]) -> list[Group | _Write]:
        """Sort a batch into groups and calls, in order; arrays are encoded before the lock."""
        parts: list[Group | _Write] = []
        group: Group | None = None
        for write in batch:
            if write.call is not None:
                parts.append(write)
                group = None
                continue
            if group is None:
                group = self._new_group()
                parts.append(group)
            group.add(write.item)
        return parts

    def _apply(self, parts: Sequence[Group | _Write]) -> None:
        for part in parts:
            if isinstance(part, _Write):
                self._call(part)
            else:
                part.apply(self._connection)

    def _call(self, write: _Write) -> None:
        assert write.call is not None
        run(self._connection, "SAVEPOINT one_call")
        try:
            write.result = write.call(self._connection)
        except JournalError as error:  # refused on purpose: undo this one and go on
            run(self._connection, "ROLLBACK TO one_call")
            write.error = error
        run(self._connection, "RELEASE one_call")

    def _begin(self) -> None:
        deadline = time.monotonic() + LOCKED_S
        while True:
            try:
                run(self._connection, "BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            else:
                return

    def _rollback(self) -> None:
        if in_transaction(self._connection):  # a full disk has rolled back already
            run(self._connection, "ROLLBACK")


def _explain(error: Exception) -> JournalError:
    if isinstance(error, JournalError):
        return error
    if isinstance(error, DBAPIError):
        error = error.orig if isinstance(error.orig, Exception) else error
    if "full" in str(error):
        told = f"the journal's disk is full, free some space: {error}"
    elif isinstance(error, sqlite3.IntegrityError):
        told = f"it names a turn that is unknown or answered already: {error}"
    else:
        told = f"the journal could not write: {type(error).__name__}: {error}"
    refused = JournalError(told)
    refused.__cause__ = error
    return refused


def _resolve(write: _Write) -> None:
    if write.done is not None:
        write.done(write.error is None)
    if write.future is None:
        if write.error is not None:
            log.error("a write nobody waits for was lost: %s", write.error)
        return
    if not write.future.set_running_or_notify_cancel():
        return  # the caller went away; the write is done all the same
    if write.error is not None:
        write.future.set_exception(write.error)
    else:
        write.future.set_result(write.result)
