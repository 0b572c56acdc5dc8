"""The thread that folds the log stops whenever it is told to."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace

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
