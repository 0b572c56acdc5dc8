"""What ``up`` shows while it supervises: never a reason to stop."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rejoinder.cli import up
from rejoinder.config import Config
from rejoinder.journal import status
from rejoinder.journal.sql import SqlJournal
from rejoinder.launch.system import LocalSystem


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlJournal:
    """A journal whose disk fails while the status is read."""

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(status, "status", fail)
    return SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}")


def test_a_journal_that_cannot_be_read_is_shown_and_supervising_goes_on(
    journal: SqlJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[int] = []
    stopping = threading.Event()

    def watch() -> list[object]:
        watched.append(1)
        if len(watched) == 3:
            stopping.set()
        return []

    said: list[str] = []
    monkeypatch.setattr(up, "_TICK_S", 0.0)
    monkeypatch.setattr(up, "_STATUS_S", 0.0)
    monkeypatch.setattr(up, "show_note", said.append)
    system = cast("LocalSystem", SimpleNamespace(watch=watch, config=Config()))
    with journal:
        up._watch_plainly(system, journal, stopping)
        line = up._status_line(system, journal).plain
    (note,) = said  # once, not every two seconds
    assert note == line
    assert note.startswith("status unavailable: ")
    assert note.endswith("disk I/O error")


def test_a_remark_that_cannot_be_written_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from rejoinder.cli import terminal

    class Full:
        def print(self, *_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(terminal, "err", Full)
    terminal.show_note("version 3 is live")
