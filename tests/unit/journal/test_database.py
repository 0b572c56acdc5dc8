"""Connections to the journal's file beside other processes' locks, and the plans of hot queries."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from journal_story import Story, finishing, opening, user

from rejoinder.errors import JournalError
from rejoinder.journal import database, statements
from rejoinder.journal.capture import HUGE_BYTES, TurnGroup
from rejoinder.journal.database import Database, RowsStatement, driver
from rejoinder.journal.feedback import SCORES_TEACH
from rejoinder.journal.lost import LostOpenings
from rejoinder.journal.memory import TurnMemory
from rejoinder.journal.sql import SqlJournal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    SqlJournal(f"sqlite:///{path}").close()
    return path


def test_regression_a_new_reader_waited_for_whoever_was_writing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_MS", 50)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    reading = Database(f"sqlite:///{path}")
    try:
        rows = reading.reader().exec_driver_sql("SELECT count(*) FROM turns").scalar_one()
        assert rows == 0
    finally:
        reading.close()
        other.close()


def test_a_new_file_gives_freed_pages_back(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,), "incremental"


def test_a_request_is_looked_for_among_those_of_its_session(path: Path) -> None:
    """Guards against a walk through all sessions that opened with the same words."""
    journal = Database(f"sqlite:///{path}")
    statement = statements.FIND_REQUEST_IN_SESSION
    plan = driver(journal.reader()).execute(
        f"EXPLAIN QUERY PLAN {statement.sql}", [None] * len(statement.names)
    )
    steps = [row[3] for row in plan]
    assert any("ix_turns_session (session_id=? AND request_chain=?)" in step for step in steps)
    journal.close()


@pytest.mark.parametrize("count", [1, 2, 7, 32, 33, 100])
def test_any_number_of_rows_is_written_and_counted(path: Path, count: int) -> None:
    rows = [{"tenant": f"tenant {number}", "created_at": float(number)} for number in range(count)]
    writing = Database(f"sqlite:///{path}")
    try:
        connection = writing.connect()
        assert statements.INSERT_TENANT.many(connection, rows) == count
        assert statements.INSERT_TENANT.many(connection, rows) == 0, "they are there"
        found = connection.exec_driver_sql("SELECT tenant, created_at FROM tenants ORDER BY 2")
        assert [tuple(row) for row in found] == [tuple(row.values()) for row in rows]
        connection.close()
    finally:
        writing.close()


@pytest.mark.parametrize(
    "statement",
    [
        statements.INSERT_CONTENT_REF,
        statements.FINISH_TURN,
        statements.QUEUE_JUDGING,
        statements.REOPEN_FOR_JUDGING,
    ],
)
def test_rows_are_looked_for_by_key_and_never_in_whole_tables(
    path: Path, statement: RowsStatement
) -> None:
    reading = Database(f"sqlite:///{path}")
    try:
        for _, text in statement.texts:
            explained = f"EXPLAIN QUERY PLAN {text}"
            plan = driver(reading.reader()).execute(explained, [None] * text.count("?")).fetchall()
            scanned = [step[3] for step in plan if step[3].startswith("SCAN")]
            assert all(step == "SCAN given" or "CONSTANT ROW" in step for step in scanned)
    finally:
        reading.close()


def test_an_sqlite_that_is_too_old_is_told_before_anything_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one row a statement it served; then the first answer failed by a fault of syntax."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 31, 1))
    with pytest.raises(JournalError, match=r"needs 3\.33 or newer: use another build of Python"):
        Database(f"sqlite:///{tmp_path / 'home' / 'journal.db'}")
    assert list(tmp_path.iterdir()) == []


def test_huge_contents_are_written_one_at_a_time(path: Path) -> None:
    """Kept statements hold their last values: images of many rows stayed in memory for good."""
    written: list[str] = []
    with SqlJournal(f"sqlite:///{path}") as journal, journal.database.snapshot() as connection:
        group = TurnGroup(TurnMemory(), LostOpenings(), SCORES_TEACH)
        texts = [letter * HUGE_BYTES for letter in "abc"] + [letter * 1000 for letter in "def"]
        group.add(opening(messages=[user(text) for text in texts]))
        driver(connection).set_trace_callback(written.append)
        group.apply(connection)
        stored = [text for text in written if text.startswith("INSERT INTO contents")]
        assert [text.count("x'") for text in stored] == [4, 2, 2, 2, 2]


def gone(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    copy.replace(path)


@pytest.mark.parametrize(
    ("happens", "told"),
    [(gone, "it was deleted or moved away"), (replaced, "another file has taken its place")],
)
def test_a_journal_whose_file_is_no_longer_there_writes_nothing_and_says_so(
    tmp_path: Path, happens: Callable[[Path], None], told: str
) -> None:
    path = tmp_path / "journal.db"
    with SqlJournal(f"sqlite:///{path}") as journal:
        story = Story(journal)
        story.answer()
        happens(path)
        with pytest.raises(JournalError, match=told):
            journal.check_file()
        with pytest.raises(JournalError, match=f"{told}.*Stop the system"):
            story.answer()
        with pytest.raises(JournalError, match=told):
            journal.size_report()  # a connection of its own, which would make a new file


def test_the_writer_finds_out_by_itself_and_a_file_that_comes_back_is_written_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, aside = tmp_path / "journal.db", tmp_path / "aside.db"
    with SqlJournal(f"sqlite:///{path}") as journal:
        story = Story(journal)
        path.rename(aside)
        deadline = time.monotonic() + 30
        with pytest.raises(JournalError, match="deleted or moved away"):  # noqa: PT012
            while time.monotonic() < deadline:  # only writes: nobody asks how the file is
                story.answer()
        aside.rename(path)
        while journal.database.lost is not None and time.monotonic() < deadline:
            with contextlib.suppress(JournalError):
                story.answer()
        story.answer()
    assert sum("deleted or moved away" in one.message for one in caplog.records) >= 1


def test_an_answer_after_the_file_came_back_names_why_its_opening_is_not_there(
    tmp_path: Path,
) -> None:
    """It was said to be of a conversation that somebody had deleted."""
    path, aside = tmp_path / "journal.db", tmp_path / "aside.db"
    with SqlJournal(f"sqlite:///{path}") as journal:
        path.rename(aside)
        with pytest.raises(JournalError):
            journal.check_file()
        turn = opening()
        journal.open_turn(turn)
        with pytest.raises(JournalError, match="deleted or moved away"):
            journal.flush()
        aside.rename(path)
        journal.check_file()
        with pytest.raises(JournalError, match=r"opening could not be written: the journal .*away"):
            journal.finish_turn(finishing(turn)).result(9)


def test_a_log_without_its_journal_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "journal.db-wal").write_bytes(b"of another")
    with pytest.raises(JournalError, match=r"is gone, but its log journal\.db-wal is there"):
        Database(f"sqlite:///{tmp_path / 'journal.db'}")
    assert not (tmp_path / "journal.db").exists()
