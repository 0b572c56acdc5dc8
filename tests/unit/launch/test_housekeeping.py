"""Retention while the system runs."""

from __future__ import annotations

import threading

from rejoinder.config import JournalConfig
from rejoinder.errors import JournalError
from rejoinder.launch.housekeeping import Housekeeper
from rejoinder.types import Json


class Journal:
    def __init__(self) -> None:
        self.calls: list[tuple[float | None, int | None]] = []
        self.enough = threading.Event()

    def apply_retention(self, keep_days: float | None, max_bytes: int | None) -> Json:
        self.calls.append((keep_days, max_bytes))
        if len(self.calls) == 1:
            raise JournalError("the disk is full")
        self.enough.set()
        return {"sessions": {"age": 1, "size": 0}, "above_limit": False}


def test_the_limits_are_applied_again_and_again_even_after_a_failure() -> None:
    journal = Journal()
    with Housekeeper(journal, JournalConfig(keep_days=3.0), first_s=0.0, every_s=0.01):
        assert journal.enough.wait(10)
    assert journal.calls[:2] == [(3.0, None), (3.0, None)]


def test_without_limits_nothing_is_deleted() -> None:
    journal = Journal()
    with Housekeeper(journal, JournalConfig(), first_s=0.0, every_s=0.01):
        assert not journal.enough.wait(0.1)
    assert journal.calls == []
