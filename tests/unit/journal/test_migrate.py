from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from rejoinder.errors import JournalError
from rejoinder.journal.database import Database
from rejoinder.journal.migrate import SCRIPTS, upgrade
from rejoinder.journal.schema import REVISION, metadata
from rejoinder.journal.sql import SqlJournal


def shape(path: Path) -> dict[str, list[str]]:
    """The parts of the SQL of all tables and indexes; the order of constraints is no matter."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {
            name: sorted(" ".join(part.split()).rstrip(" )") for part in sql.split(","))
            for name, sql in rows
            if "alembic" not in name
        }


def test_the_migrations_give_exactly_the_declared_tables(tmp_path: Path) -> None:
    upgrade(f"sqlite:///{tmp_path / 'migrated.db'}")
    database = Database(f"sqlite:///{tmp_path / 'created.db'}")
    metadata.create_all(database.engine)
    database.close()
    assert shape(tmp_path / "migrated.db") == shape(tmp_path / "created.db")


def test_the_newest_script_is_the_revision_of_the_code() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


def test_upgrading_again_changes_nothing(url: str, tmp_path: Path) -> None:
    upgrade(url)
    before = shape(tmp_path / "journal.db")
    upgrade(url)
    assert shape(tmp_path / "journal.db") == before


def test_a_database_of_a_newer_program_is_refused(url: str, tmp_path: Path) -> None:
    upgrade(url)
    with sqlite3.connect(tmp_path / "journal.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(JournalError, match=r"newer version of Rejoinder.*upgrade the program"):
        SqlJournal(url)


def test_a_file_that_is_no_database_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"This is a letter, not a database. " * 100)
    with pytest.raises(JournalError, match="cannot be used"):
        SqlJournal(url)


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("postgresql://host/db", "sqlite only"),
        ("sqlite://", "name a file"),
        ("journal.db", "not a database URL"),
    ],
)
def test_a_url_that_cannot_work_says_what_to_change(url: str, remedy: str) -> None:
    with pytest.raises(JournalError, match=remedy):
        SqlJournal(url)


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    SqlJournal(f"sqlite:///{tmp_path / 'a' / 'b' / 'journal.db'}").close()
    assert (tmp_path / "a" / "b" / "journal.db").exists()


def test_processes_that_start_at_once_all_find_the_tables(url: str) -> None:
    code = f"from rejoinder.journal.sql import SqlJournal; SqlJournal({url!r}).close()"
    starts = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [start.wait(60) for start in starts] == [0, 0, 0]


def test_a_commit_is_flushed_and_readers_are_not_blocked(url: str) -> None:
    with SqlJournal(url) as journal:
        connection = journal.database.reader()
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "auto_vacuum")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "auto_vacuum": 2}
