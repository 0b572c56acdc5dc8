"""The journal as commands read it: one that exists, never a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rejoinder.errors import JournalError

if TYPE_CHECKING:
    from pathlib import Path

    from rejoinder.config import Config
    from rejoinder.journal.sql import SqlJournal


def journal_file(config: Config) -> Path:
    """Return the path of an SQLite journal.

    Raises:
        JournalError: ``journal.url`` names none.
    """
    from rejoinder.journal.database import database_file

    return database_file(config.journal_url)


def open_journal(config: Config) -> SqlJournal:
    """Open the journal.

    Raises:
        JournalError: there is none yet, or it cannot be used.
    """
    from rejoinder.journal.sql import SqlJournal

    if not journal_file(config).is_file():
        raise JournalError(
            f"there is no journal at {journal_file(config)} yet: start the system with "
            "`rejoinder up`, or name the right --home or --config"
        )
    return SqlJournal(config.journal_url)
