from __future__ import annotations

import sqlite3
import threading
import time
from concurrent.futures import wait
from pathlib import Path

import pytest
from journal_story import SCOPE, Story, finishing, opening, unique
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DatabaseError

from rejoinder.errors import JournalError, UnknownTurn
from rejoinder.journal import lost, writer
from rejoinder.journal.capture import TurnGroup
from rejoinder.journal.records import AbortedTurn
from rejoinder.journal.sql import SqlJournal
from rejoinder.types import Fate


def hold_writer(story: Story) -> threading.Event:
    """Keep the writer busy until the event is set, so that writes come together."""
    go = threading.Event()
    story.journal._writer.submit(lambda _connection: go.wait(10))
    return go


def test_a_failing_write_fails_its_own_future_only(story: Story) -> None:
    go = hold_writer(story)
    good, bad = [opening() for _ in range(20)], opening()
    futures = []
    for turn in good:
        story.journal.open_turn(turn)
        futures.append(story.journal.finish_turn(finishing(turn)))
    never_opened = story.journal.finish_turn(finishing(bad))
    too_big = opening(prompt_ids=[2**40])
    story.journal.open_turn(too_big)
    go.set()
    wait(futures, 10)
    assert [future.exception() for future in futures] == [None] * 20
    assert isinstance(never_opened.exception(10), JournalError)
    assert story.count("turns") == 20


def test_a_refused_call_fails_alone_and_its_neighbours_commit(story: Story) -> None:
    turn = story.answer()
    go = hold_writer(story)
    refused = story.journal.add_feedback(SCOPE, turn.completion_id, 0, 9, None)
    kept = story.journal.add_feedback(SCOPE, turn.completion_id, 0, 1, None)
    go.set()
    assert isinstance(refused.exception(10), JournalError)
    assert kept.result(10).outcome == "accepted"
    assert story.count("feedback") == 1


def test_a_call_that_fails_midway_leaves_nothing_behind(story: Story) -> None:
    def half(connection) -> None:
        connection.exec_driver_sql("INSERT INTO tenants VALUES ('half', 0)")
        raise JournalError("no")

    with pytest.raises(JournalError, match="no"):
        story.journal._writer.call(half)
    assert story.rows("SELECT tenant FROM tenants") == [("local",)]


def test_a_child_of_a_failed_answer_is_stored_in_full(story: Story) -> None:
    go = hold_writer(story)
    parent = opening(prompt_ids=[1, 2, 3])
    story.journal.open_turn(parent)
    failing = story.journal.finish_turn(finishing(parent, answer_ids=[2**40, 1, 1]))
    child = opening(session_id=parent.session_id, parent_id=parent.turn_id, prompt_ids=[1, 2, 3, 4])
    story.journal.open_turn(child)
    done = story.journal.finish_turn(finishing(child))
    go.set()
    assert isinstance(failing.exception(10), JournalError)
    done.result(10)
    assert story.journal.read_request(child.turn_id).prompt_ids == [1, 2, 3, 4]


def test_a_child_whose_parent_was_deleted_elsewhere_is_stored_in_full(story: Story) -> None:
    parent = story.answer(prompt_ids=[1, 2, 3])
    reader = story.journal.database.connect()
    reader.exec_driver_sql("DELETE FROM turns")
    reader.close()
    child = story.answer(
        session_id=parent.session_id,
        parent_id=parent.turn_id,
        prompt_ids=[1, 2, 3, 7, 8, 9, 4],
    )
    assert story.journal.read_request(child.turn_id).prompt_ids == [1, 2, 3, 7, 8, 9, 4]


def test_a_full_queue_is_an_error_and_not_a_wait(url: str) -> None:
    with SqlJournal(url, queue_limit=5) as journal:
        story = Story(journal)
        go = hold_writer(story)
        while journal.backlog:
            time.sleep(0.001)
        for _ in range(5):
            journal.count("gateway", "requests", "refused")
        with pytest.raises(JournalError, match="retry later"):
            journal.open_turn(opening())
        go.set()
        journal.flush()
        turn = opening(request_chain=unique("later"))
        journal.open_turn(turn)
        journal.flush()
        assert len(journal.find_same_request(SCOPE, turn.request_chain, None)) == 1


def test_a_full_disk_is_a_clear_error_and_later_writes_work(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    def limit(connection, pages: int) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}").close()

    journal = story.journal
    (pages,) = story.rows("PRAGMA page_count")[0]
    journal._writer.call(lambda c: limit(c, pages))
    turn = opening(prompt_ids=range(200_000))
    journal.open_turn(turn)
    with pytest.raises(JournalError, match=r"full|unknown"):
        journal.finish_turn(finishing(turn, answer_ids=range(200_000))).result(10)
    journal._writer.call(lambda c: limit(c, pages + 10_000))
    story.answer()
    assert story.count("turns") == 1
    assert "disk is full" in caplog.text


def test_a_lock_held_by_another_process_is_waited_for(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = story.journal
    journal._writer.call(lambda c: c.exec_driver_sql("PRAGMA busy_timeout = 10").close())
    other = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    turn = opening()
    journal.open_turn(turn)
    future = journal.finish_turn(finishing(turn))
    time.sleep(0.2)
    assert not future.done()
    other.execute("COMMIT")
    other.close()
    future.result(10)


def commits_of(story: Story) -> list[str]:
    """Return a list to which every commit from now on is added."""
    commits: list[str] = []
    story.journal._writer.submit(
        lambda c: c.connection.driver_connection.set_trace_callback(
            lambda sql: commits.append(sql) if sql == "COMMIT" else None
        )
    ).result(10)
    commits.clear()
    return commits


def test_answers_that_come_together_share_a_commit(story: Story) -> None:
    commits = commits_of(story)
    go = hold_writer(story)
    turns = [opening() for _ in range(20)]
    for turn in turns:
        story.journal.open_turn(turn)
    futures = [story.journal.finish_turn(finishing(turn)) for turn in turns]
    go.set()
    wait(futures, 10)
    assert len(commits) <= 3


def test_an_answer_that_comes_at_once_shares_the_commit_of_its_request(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LINGER_S", 30.0)
    commits = commits_of(story)
    for _ in range(3):
        turn = opening()
        story.journal.open_turn(turn)
        story.journal.finish_turn(finishing(turn)).result(10)
    assert len(commits) == 3


def test_what_nobody_waits_for_shares_the_commit_of_what_somebody_does(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = [story.answer(), story.answer()]
    monkeypatch.setattr(writer, "LINGER_S", 30.0)
    commits = commits_of(story)
    turn = opening()
    story.journal.open_turn(turn)
    story.journal.mark_ambiguous([one.turn_id for one in earlier])
    story.journal.supersede(earlier[0].turn_id, turn.turn_id)
    time.sleep(0.1)  # the thread would write now, had it been woken
    assert commits == []
    story.journal.finish_turn(finishing(turn)).result(10)
    assert len(commits) == 1


def test_openings_wake_no_thread_while_turns_follow_each_other(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.answer()
    monkeypatch.setattr(writer, "LINGER_S", 30.0)
    commits_of(story)
    wake = story.journal._writer._wake
    woken, notify = [], wake.notify
    monkeypatch.setattr(wake, "notify", lambda: (woken.append(1), notify())[1])
    for count in range(1, 4):
        turn = opening()
        story.journal.open_turn(turn)
        assert len(woken) == count - 1
        story.journal.finish_turn(finishing(turn)).result(10)
        assert len(woken) == count


def test_a_thread_that_sleeps_is_woken_by_what_nobody_waits_for(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a first turn whose opening waits for the thread's next look at the queue."""
    turn = opening()
    deadline = time.monotonic() + 10
    while not story.journal._writer._asleep:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    monkeypatch.setattr(writer, "LINGER_S", 30.0)  # it does not sleep again while this is looked at
    story.journal.open_turn(turn)
    assert not story.journal._writer._asleep


def test_what_nobody_waits_for_is_written_soon_all_the_same(story: Story) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    deadline = time.monotonic() + 10
    while not story.journal.explain_turn(turn.turn_id):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nobody_waits_for_a_writer_that_has_died(story: Story) -> None:
    def die(_written: bool) -> None:
        raise MemoryError

    go = hold_writer(story)
    story.journal._writer.add(opening(), die)
    waiting = story.journal.finish_turn(finishing(opening()))
    go.set()
    with pytest.raises(JournalError):
        waiting.result(10)
    story.journal._writer._thread.join(10)
    with pytest.raises(JournalError, match="closed"):
        story.journal.flush()


def test_a_cancelled_future_does_not_stop_the_writer(story: Story) -> None:
    go = hold_writer(story)
    turn = opening()
    story.journal.open_turn(turn)
    assert story.journal.finish_turn(finishing(turn)).cancel()
    go.set()
    story.journal.flush()
    assert story.fate_of(turn)[0] == "waiting"


def test_threads_write_at_once_without_losing_anything(story: Story) -> None:
    def work() -> None:
        for _ in range(10):
            story.answer()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert story.count("turns") == story.count("answers") == 40


@pytest.mark.parametrize("what", ["abort_turn", "supersede"])
def test_what_needs_an_opening_that_was_lost_is_not_said_to_be_of_a_deleted_conversation(
    story: Story, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The journal passed for well, and what a full disk had cost for what people had deleted."""

    def full(_group: TurnGroup, _connection: Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    turn = opening()
    with monkeypatch.context() as broken:
        broken.setattr(TurnGroup, "apply", full)
        story.journal.open_turn(turn)
        story.journal.flush()
    if what == "abort_turn":
        written = story.journal.abort_turn(AbortedTurn(turn.turn_id, Fate.CLIENT_GONE))
    else:
        written = story.journal.supersede(turn.turn_id, "another")
    with pytest.raises(JournalError, match=r"opening could not be written: .* full") as refused:
        written.result(9)
    assert not isinstance(refused.value, UnknownTurn)


def test_a_cause_that_cannot_be_read_does_not_end_the_writer(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every later write was refused until the process was started anew."""

    def unreadable(*_: object) -> bool:
        raise DatabaseError("SELECT", None, sqlite3.DatabaseError("disk image is malformed"))

    monkeypatch.setattr(lost, "_is_deleted", unreadable)
    turn = story.answer()
    story.journal.open_turn(turn)  # once more: refused, and the journal is asked why
    story.journal.flush()
    story.answer()
