"""Bring a database to the revision of this code. Safe when several processes start at once."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DatabaseError

from rejoinder.errors import JournalError
from rejoinder.journal.database import Database, run
from rejoinder.journal.schema import REVISION

SCRIPTS = Path(__file__).parent / "migrations"


def upgrade(url: str) -> None:
    """Create the tables or run the missing migrations.

    Raises:
        JournalError: the file is no journal, or a newer version of the program wrote it.
    """
    database = Database(url)
    try:
        upgrade_database(database)
    finally:
        database.close()


def upgrade_database(database: Database) -> None:
    """Same as ``upgrade``, for an open database."""
    with database.connect() as connection:
        try:
            if _revision(connection) == REVISION:
                return
            # The write lock is the lock: the second process waits here and finds all done.
            run(connection, "BEGIN IMMEDIATE")
            found = _revision(connection)
            if found != REVISION:
                _run_scripts(connection, database, found)
            run(connection, "COMMIT")
        except DatabaseError as error:
            raise JournalError(
                f"{database.path} cannot be used as a journal: {error.orig}"
            ) from error


def _revision(connection: Connection) -> str | None:
    """Return the revision a database is at; None for an empty one."""
    names = connection.exec_driver_sql(
        "SELECT name FROM sqlite_master WHERE name = 'alembic_version'"
    )
    if names.first() is None:
        return None
    row = connection.execute(sa.text("SELECT version_num FROM alembic_version")).first()
    return None if row is None else str(row[0])


def _run_scripts(connection: Connection, database: Database, found: str | None) -> None:
    # Imported here: it costs a third of a second, and nearly every start needs no migration.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise JournalError(
            f"{database.path} was written by a newer version of Rejoinder (revision {found}; this "
            f"one knows {REVISION}): upgrade the program or set journal.url to another file"
        )
    command.upgrade(config, "head")
