"""Folding SQLite's log into the database file, away from the writer's thread.

A passive checkpoint blocks nobody. Done twice a second it leaves little to the commit that, once
the log has grown to ``CHECKPOINT_PAGES``, copies the rest and starts the log anew.
"""

from __future__ import annotations

import logging
import sqlite3
import threading

from rejoinder.errors import JournalError
from rejoinder.journal.database import Database, run

log = logging.getLogger(__name__)

INTERVAL_S = 0.5


class Checkpointer:
    """A thread that runs a passive checkpoint some time after writes, and watches the file."""

    def __init__(self, database: Database) -> None:
        """Open a connection here, where whoever opens the journal is told if that fails.

        Raises:
            JournalError: it cannot be opened.
        """
        self._database = database
        self._connection = database.connect()
        self._wanted = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal-checkpoint", daemon=True)
        self._thread.start()

    def wanted(self) -> None:
        """Say that something has been written."""
        self._wanted.set()

    def close(self) -> None:
        """Stop; closing the database's last connection does the final checkpoint."""
        self._closed.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        with self._connection as connection:
            while True:
                self._wanted.wait()
                if self._closed.wait(INTERVAL_S):
                    return
                self._wanted.clear()
                if self._closed.is_set():  # it was called just now, and that call is cleared
                    return
                try:
                    run(connection, "PRAGMA wal_checkpoint(PASSIVE)")
                except sqlite3.Error as error:  # of any kind: the file is watched on
                    log.warning("the journal's log stays unfolded for now: %s", error)
                self._look()

    def _look(self) -> None:
        """Tell the writer, through the database, whether it writes where others read.

        Here, because what it costs to ask is not for those who wait for a commit.
        """
        known = self._database.lost
        try:
            self._database.check_file()
        except JournalError as error:
            if known is None:
                log.error("%s", error)  # noqa: TRY400 - one line is enough
