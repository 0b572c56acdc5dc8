"""What the workers of one gateway count together: per key its buckets and its requests in progress.

Numbers in a file that every worker maps, and a lock of the kernel on the bytes of each key. Such a
lock is free again when its holder is killed, and taking it costs two calls of some microseconds. A
gateway with one worker has the numbers for itself and takes no lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
from array import array
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_SIZE = 8
_REQUESTS, _TOKENS, _FIRST_WORKER = 0, 1, 2


@dataclass(frozen=True, slots=True)
class SharedTally:
    """Where the numbers are, for a worker process."""

    path: Path
    workers: int
    worker: int
    """This one's number; one that takes the place of a dead worker has that one's."""

    def forget_worker(self) -> None:
        """Take back what a dead worker held; its successor has not started."""
        row = (_FIRST_WORKER + self.workers) * _SIZE
        with self.path.open("r+b") as file:
            for start in range(0, self.path.stat().st_size, row):
                file.seek(start + (_FIRST_WORKER + self.worker) * _SIZE)
                file.write(bytes(_SIZE))


def make_file(path: Path, keys: int, workers: int) -> None:
    """Write the numbers of a gateway that starts: all 0."""
    path.write_bytes(bytes(keys * (_FIRST_WORKER + workers) * _SIZE))


class Tally:
    """One worker's view of the numbers. Keys are numbered from 0."""

    def __init__(self, keys: int, shared: SharedTally | None = None) -> None:
        self._workers = 1 if shared is None else shared.workers
        self._own = _FIRST_WORKER + (0 if shared is None else shared.worker)
        self._row = _FIRST_WORKER + self._workers
        self._file: BinaryIO | None = None
        self._numbers: memoryview[float]
        if shared is None:
            self._numbers = memoryview(array("d", bytes(keys * self._row * _SIZE)))
        else:
            self._file = shared.path.open("r+b")
            self._numbers = memoryview(mmap.mmap(self._file.fileno(), 0)).cast("d")

    def locked(self, key: int) -> AbstractContextManager[KeyNumbers]:
        """Hold a key's numbers, for as long as it takes to compare and change them."""
        numbers = KeyNumbers(self._numbers, key * self._row, self._own, self._row)
        if self._file is None:
            return contextlib.nullcontext(numbers)
        return self._lock(self._file, key, numbers)

    @contextlib.contextmanager
    def _lock(self, file: BinaryIO, key: int, numbers: KeyNumbers) -> Iterator[KeyNumbers]:
        descriptor, length = file.fileno(), self._row * _SIZE
        fcntl.lockf(descriptor, fcntl.LOCK_EX, length, key * length)
        try:
            yield numbers
        finally:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, length, key * length)


class KeyNumbers:
    """The numbers of one key."""

    __slots__ = ("_end", "_numbers", "_own", "_start")

    def __init__(self, numbers: memoryview[float], start: int, own: int, row: int) -> None:
        self._numbers = numbers
        self._start = start
        self._own = start + own
        self._end = start + row

    @property
    def requests_until(self) -> float:
        """When the bucket of requests will be full again, on the monotonic clock."""
        return self._numbers[self._start + _REQUESTS]

    @requests_until.setter
    def requests_until(self, when: float) -> None:
        self._numbers[self._start + _REQUESTS] = when

    @property
    def tokens_until(self) -> float:
        """When the bucket of tokens will be full again, on the monotonic clock."""
        return self._numbers[self._start + _TOKENS]

    @tokens_until.setter
    def tokens_until(self, when: float) -> None:
        self._numbers[self._start + _TOKENS] = when

    @property
    def here(self) -> int:
        """Requests in progress in this worker."""
        return int(self._numbers[self._own])

    @here.setter
    def here(self, count: int) -> None:
        self._numbers[self._own] = count

    @property
    def everywhere(self) -> int:
        """Requests in progress in all workers."""
        return int(sum(self._numbers[self._start + _FIRST_WORKER : self._end]))
