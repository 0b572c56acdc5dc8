"""Making sure that what was deleted is in no file of the journal any more.

Deleted rows are overwritten (``secure_delete``), but SQLite leaves copies of rows that it has moved
in the unused parts of pages, and the log holds pages as they were. So the log is emptied, and the
file is written anew; that keeps other writers waiting, so a large one only where a person says so.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from rejoinder.errors import JournalError
from rejoinder.journal.database import Database, driver, run

WAIT_S = 30.0
"""How long other programs' transactions are waited for."""


def scrub(database: Database) -> None:
    """Write the file anew and empty its log. The caller's threads must be between transactions.

    Raises:
        JournalError: others keep it from happening, or the disk has no room for a second copy.
    """
    empty_log(database)  # less is then written twice
    with database.connect() as connection:
        run(connection, "PRAGMA temp_store = FILE")  # it may be larger than the memory
        _retried(database, lambda: run(connection, "VACUUM"))
    empty_log(database)


def empty_log(database: Database) -> None:
    """Fold the log into the file and cut it to nothing.

    Raises:
        JournalError: other programs read or write all the time.
    """

    def checkpoint() -> None:
        row = driver(connection).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if row[0]:
            raise sqlite3.OperationalError("database is locked by a reader")

    with database.connect() as connection:
        _retried(database, checkpoint)


def _retried(database: Database, work: Callable[[], None]) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            work()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise JournalError(
                    f"{database.path} may still hold what was deleted in its unused parts: {error}"
                    "; run `rejoinder records scrub` later"
                ) from error
            time.sleep(0.05)
        else:
            return
