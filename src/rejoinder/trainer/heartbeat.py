"""What the trainer says of itself while it works: heartbeats in the journal."""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType

from rejoinder.journal.base import WatchJournal
from rejoinder.journal.records import RoleReport
from rejoinder.types import Json

ROLE = "trainer"
REPORT_S = 2.0


class Heartbeat:
    """Reports every two seconds from a thread of its own, also during a long backward pass."""

    def __init__(self, journal: WatchJournal, detail: Json) -> None:
        """Begin with what never changes, such as the batch size."""
        self._journal = journal
        self._lock = threading.Lock()
        self._state = "loading"
        self._detail = dict(detail)
        self._error: str | None = None
        self._error_at: float | None = None
        self._started_at = time.time()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._send()
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
        if error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
            self.note_error(f"{type(error).__name__}: {error}")
        self.update("stopped", message=None, progress=None)
        self._send()

    def update(self, state: str, **detail: object) -> None:
        """Change state and figures; a None takes a figure away."""
        with self._lock:
            self._state = state
        self.note(**detail)

    def note(self, **detail: object) -> None:
        """Change figures alone."""
        with self._lock:
            self._detail |= detail
            self._detail = {key: value for key, value in self._detail.items() if value is not None}

    def note_error(self, error: str) -> None:
        """Keep an error; it stays the last one until the next."""
        with self._lock:
            self._error, self._error_at = error, time.time()

    def _run(self) -> None:
        while not self._end.wait(REPORT_S):
            self._send()

    def _send(self) -> None:
        with self._lock:
            report = RoleReport(
                role=ROLE,
                instance=f"{ROLE}-{os.getpid()}",
                pid=os.getpid(),
                state=self._state,
                detail=dict(self._detail),
                last_error=self._error,
                last_error_at=self._error_at,
                started_at=self._started_at,
                seen_at=time.time(),
            )
        self._journal.report(report)
