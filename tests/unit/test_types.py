"""Ids."""

from __future__ import annotations

import os
import time

import pytest

from rejoinder.types import new_id


def test_ids_sort_in_the_order_they_were_made_also_within_a_millisecond():
    ids = [new_id() for _ in range(2000)]
    assert ids == sorted(set(ids))
    assert {len(id_) for id_ in ids} == {32}


def test_ids_sort_in_order_also_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch):
    before = new_id()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    assert new_id() > before


def test_ids_of_a_forked_process_are_its_own(monkeypatch):
    monkeypatch.setattr("rejoinder.types.time.time_ns", lambda: 1_700_000_000_000_000_000)
    monkeypatch.setattr("rejoinder.types._last_id", 0)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, new_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 64).decode() != new_id()
