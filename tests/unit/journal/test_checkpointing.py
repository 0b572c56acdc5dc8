"""The thread that folds the log stops whenever it is told to."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from types import SimpleNamespace

import pytest

from rejoinder.errors import JournalError
from rejoinder.journal import checkpointing
from rejoinder.journal.checkpointing import Checkpointer


class _CalledWhileCleared(threading.Event):
    """An event that somebody sets, with every other one, just before it is cleared."""

    made: list[threading.Event] = []  # noqa: RUF012 - of one test

    def __init__(self) -> None:
        super().__init__()
        self.made.append(self)

    def clear(self) -> None:
        for event in self.made:
            event.set()
        super().clear()


def test_a_close_between_the_wait_and_the_clear_is_not_forgotten(monkeypatch):
    """It was: the thread waited for ever, and so did whoever closed the journal."""
    monkeypatch.setattr(_CalledWhileCleared, "made", [])
    parts = SimpleNamespace(Event=_CalledWhileCleared, Thread=threading.Thread)
    monkeypatch.setattr(checkpointing, "threading", parts)
    monkeypatch.setattr(checkpointing, "INTERVAL_S", 0.001)
    monkeypatch.setattr(checkpointing, "run", lambda *_: None)
    database = SimpleNamespace(connect=contextlib.nullcontext)
    folding = Checkpointer(database)  # type: ignore[arg-type]
    folding.wanted()
    folding._thread.join(timeout=5)
    assert not folding._thread.is_alive()


def test_what_keeps_the_log_from_being_folded_does_not_end_the_watch_over_the_file(monkeypatch):
    """It ended with the first failure that was no lock, and with one to connect, in silence."""
    looked = threading.Event()

    def broken(*_: object) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(checkpointing, "INTERVAL_S", 0.001)
    monkeypatch.setattr(checkpointing, "run", broken)
    database = SimpleNamespace(connect=contextlib.nullcontext, check_file=looked.set, lost=None)
    folding = Checkpointer(database)  # type: ignore[arg-type]
    folding.wanted()
    assert looked.wait(5)
    folding.close()


def test_a_journal_that_cannot_be_folded_is_not_opened() -> None:
    def connect() -> None:
        raise JournalError("it cannot be used")

    with pytest.raises(JournalError, match="cannot be used"):
        Checkpointer(SimpleNamespace(connect=connect))  # type: ignore[arg-type]
