"""Retention while the system runs: the limits of ``[journal]``, applied now and then."""

from __future__ import annotations

import threading
from typing import Protocol

import structlog
from sqlalchemy.exc import DatabaseError

from rejoinder.config import JournalConfig
from rejoinder.errors import JournalError
from rejoinder.types import Json

log = structlog.get_logger(__name__)

FIRST_S = 60.0
EVERY_S = 3600.0


class RetentionJournal(Protocol):
    """What housekeeping needs of the journal."""

    def apply_retention(self, keep_days: float | None, max_bytes: int | None) -> Json:
        """Delete whole closed sessions that are too old or take too much space."""
        ...


class Housekeeper:
    """Applies the limits from a thread, for the time of a ``with``; does nothing without limits."""

    def __init__(
        self,
        journal: RetentionJournal,
        config: JournalConfig,
        first_s: float = FIRST_S,
        every_s: float = EVERY_S,
    ) -> None:
        self._journal = journal
        self._config = config
        self._first_s = first_s
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def __enter__(self) -> Housekeeper:
        if self._config.keep_days is not None or self._config.max_bytes is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        wait_s = self._first_s
        while not self._stop.wait(wait_s):
            wait_s = self._every_s
            try:
                report = self._journal.apply_retention(
                    self._config.keep_days, self._config.max_bytes
                )
            # Such as a full disk: tried again next time.
            except (JournalError, DatabaseError) as error:
                log.warning("retention failed", error=str(error))
                continue
            if any(report["sessions"].values()) or report["above_limit"]:
                log.info("retention", **report)
