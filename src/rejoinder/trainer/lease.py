"""The training lease: one trainer per policy, and a number that fences late writers off."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import structlog

from rejoinder.errors import JournalError, LeaseLost
from rejoinder.journal.base import TrainJournal

log = structlog.get_logger(__name__)

TTL_S = 15.0
"""How long a killed trainer's lease stands in its successor's way."""
RENEW_S = 4.0


class Lease:
    """A held lease, renewed by a thread for as long as the ``with`` block runs.

    The thread goes on while the main thread is in a long backward pass. Losing the lease ends
    nothing by force: ``check`` says so at the next clean point, and the journal refuses the
    commit in any case.
    """

    def __init__(self, journal: TrainJournal, name: str, fence: int) -> None:
        self.name = name
        self.fence = fence
        self._journal = journal
        self._lost = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
        if not self._lost.is_set():
            self._journal.release_lease(self.name, self.fence)

    def check(self) -> None:
        """Raise ``LeaseLost`` if another trainer has taken over."""
        if self._lost.is_set():
            raise LeaseLost(f"another trainer has taken {self.name!r} over")

    def confirm(self) -> None:
        """Ask the journal whether the lease is still held.

        A process that slept past the end of its lease wakes up without knowing it, so ``check``
        is not enough before something that the journal's fence does not guard.

        Raises:
            LeaseLost: another trainer has taken over.
        """
        self._journal.renew_lease(self.name, self.fence, TTL_S)

    def _renew(self) -> None:
        while not self._end.wait(RENEW_S):
            try:
                self._journal.renew_lease(self.name, self.fence, TTL_S)
            except LeaseLost:
                self._lost.set()
                return
            except JournalError as error:  # busy or full: nobody else can have taken it by that
                log.warning("lease not renewed", error=str(error))


def wait_for_lease(
    journal: TrainJournal, name: str, owner: str, stop: threading.Event, poll_s: float
) -> Lease | None:
    """Return the lease once it is free, or None if ``stop`` was set before."""
    since = time.monotonic()
    told = False
    while not stop.is_set():
        fence = journal.acquire_lease(name, owner, TTL_S)
        if fence is not None:
            return Lease(journal, name, fence)
        if not told and time.monotonic() - since > TTL_S:
            log.warning("another trainer holds the lease", lease=name)
            told = True
        stop.wait(poll_s)
    return None
