"""The training lease."""

from __future__ import annotations

import threading
import time

import pytest

from rejoinder.errors import JournalError, LeaseLost
from rejoinder.trainer import lease as lease_module
from rejoinder.trainer.lease import Lease, wait_for_lease

from .train_story import TrainStory

NAME = "trainer:default"


@pytest.fixture(autouse=True)
def _frequent_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "RENEW_S", 0.05)


def get(story: TrainStory, owner: str) -> Lease:
    found = wait_for_lease(story.journal, NAME, owner, threading.Event(), 0.01)
    assert found is not None
    return found


def test_it_is_kept_for_as_long_as_the_work_takes(story: TrainStory) -> None:
    def expiry() -> float:
        return float(story.rows("SELECT expires_at FROM leases")[0][0])

    with get(story, "one") as lease:
        first = expiry()
        for _ in range(3):
            before = expiry()
            while expiry() <= before:
                time.sleep(0.01)
        assert expiry() > first
        lease.check()


def test_it_is_free_at_once_after_a_clean_end(story: TrainStory) -> None:
    with get(story, "one"):
        pass
    assert story.journal.acquire_lease(NAME, "two", 60.0) is not None


def test_one_that_was_not_released_is_free_after_its_time(story: TrainStory) -> None:
    story.journal.acquire_lease(NAME, "killed", 0.2)
    with get(story, "two") as lease:
        assert lease.fence == 2


def test_the_loser_of_a_lease_hears_of_it(story: TrainStory) -> None:
    with get(story, "one") as lease:
        story.journal.release_lease(NAME, lease.fence)
        fence = story.journal.acquire_lease(NAME, "two", 60.0)
        for _ in range(500):
            try:
                lease.check()
            except LeaseLost:
                break
            time.sleep(0.01)
        with pytest.raises(LeaseLost):
            lease.check()
    assert fence is not None
    story.journal.renew_lease(NAME, fence, 60.0)  # the end of the loser released nothing


def test_a_journal_that_is_busy_is_asked_again(
    story: TrainStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = threading.Event()
    original = story.journal.renew_lease
    failures = iter([JournalError("busy")])

    def renew(name: str, fence: int, ttl_s: float) -> None:
        for failure in failures:
            raise failure
        original(name, fence, ttl_s)
        renewed.set()

    monkeypatch.setattr(story.journal, "renew_lease", renew)
    with get(story, "one") as lease:
        assert renewed.wait(10)
        lease.check()


def test_waiting_ends_when_told_to_stop(story: TrainStory) -> None:
    story.journal.acquire_lease(NAME, "another", 60.0)
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    assert wait_for_lease(story.journal, NAME, "one", stop, 0.01) is None
