from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from journal_story import LEASE, Story, opening

from rejoinder.journal.retention import give_back
from rejoinder.journal.sql import SqlJournal
from rejoinder.types import new_id

DAY = 86400.0


def age(story: Story, turn, days: float) -> None:
    """Close a turn's session, as if that had been days ago."""
    story.journal.close_session(turn.session_id, "done").result(9)
    story.journal._writer.call(
        lambda c: c.exec_driver_sql(
            "UPDATE sessions SET closed_at = closed_at - ? WHERE session_id = ?",
            (days * DAY, turn.session_id),
        )
    )


def sessions(story: Story) -> set[str]:
    return {session for (session,) in story.rows("SELECT session_id FROM sessions")}


def test_old_closed_sessions_go_with_all_their_rows(story: Story) -> None:
    for _ in range(25):
        turn = story.answer(prompt_ids=range(1000))
        story.reply(turn, "x" * 1000)
        story.judge(0)
        age(story, turn, 10)
    new = story.answer()
    age(story, new, 1)
    report = story.journal.apply_retention(keep_days=5, max_bytes=None)
    assert report["sessions"] == report["turns"] == {"age": 25, "size": 0}
    assert sessions(story) == {new.session_id}
    for table in ("prompts", "answers", "turns"):
        assert story.count(table) == 1
    for table in ("next_states", "verdicts", "contents", "content_refs", "judge_jobs"):
        assert story.count(table) == 0, table


def test_a_file_that_keeps_free_pages_for_itself_is_not_asked_for_them_for_ever(
    tmp_path: Path,
) -> None:
    """As one that was put back from a dump, which does not say what this journal's files are."""
    path, whole = tmp_path / "journal.db", tmp_path / "whole.db"
    with SqlJournal(f"sqlite:///{whole}") as journal:
        turn = Story(journal).answer(prompt_ids=range(10_000))
    with closing(sqlite3.connect(whole)) as source, closing(sqlite3.connect(path)) as target:
        target.executescript("\n".join(source.iterdump()))
    with SqlJournal(f"sqlite:///{path}") as journal:
        journal.delete_sessions([turn.session_id])
        assert Story(journal).rows("PRAGMA freelist_count") > [(0,)]
        assert journal._writer.call(give_back) == 0


def test_what_was_deleted_is_counted_with_its_reason(story: Story) -> None:
    age(story, story.answer(), 10)
    story.journal.apply_retention(keep_days=5, max_bytes=None)
    assert story.journal.status("default", 4)["counters"]["retention"] == {"turns": {"age": 1}}


def test_content_that_another_session_uses_stays(story: Story) -> None:
    old = story.answer(prompt_ids=range(1000))
    kept = story.answer(prompt_ids=range(1000))
    age(story, old, 10)
    story.journal.apply_retention(keep_days=5, max_bytes=None)
    assert story.journal.read_request(kept.turn_id).prompt_ids == list(range(1000))


def waiting_for_the_judge(story: Story):
    turn = story.answer()
    story.reply(turn)
    return turn


def being_answered(story: Story):
    turn = opening()
    story.journal.open_turn(turn)
    return turn


def ready_to_train(story: Story):
    return story.sample()


def consumed_since_the_checkpoint(story: Story):
    turn = story.sample()
    story.train()
    return turn


@pytest.mark.parametrize(
    "needed",
    [waiting_for_the_judge, being_answered, ready_to_train, consumed_since_the_checkpoint],
)
def test_a_session_that_may_still_be_learned_from_stays(
    story: Story, needed: Callable[[Story], object]
) -> None:
    turn = needed(story)
    age(story, turn, 10)
    report = story.journal.apply_retention(keep_days=5, max_bytes=1)
    assert report["sessions"] == {"age": 0, "size": 0}
    assert report["above_limit"]
    assert sessions(story) == {turn.session_id}


def test_what_stays_is_counted_with_why(story: Story) -> None:
    waiting = waiting_for_the_judge(story)
    age(story, waiting, 10)
    age(story, story.answer(), 1)
    age(story, story.answer(), 10)
    story.answer()
    report = story.journal.apply_retention(keep_days=5, max_bytes=None)
    assert report["kept"] == {"open": 1, "needed": 1, "within": 1}


def test_a_consumed_sample_goes_once_a_checkpoint_is_durable(story: Story) -> None:
    turn = story.sample()
    story.train(checkpoint_uri="/checkpoints/1")
    age(story, turn, 10)
    assert story.journal.apply_retention(keep_days=5, max_bytes=None)["turns"]["age"] == 1
    assert story.rows("SELECT samples, mean_score FROM steps") == [(1, 1.0)]
    assert story.journal.rewind(LEASE, story.lease(), story.lineage(), 0) == 0


def test_a_size_limit_deletes_the_oldest_first_and_gives_space_back(story: Story) -> None:
    turns = [story.answer(prompt_ids=range(i, 20_000 + i)) for i in range(30)]
    for number, turn in enumerate(turns):
        age(story, turn, 100 - number)
    before = story.journal.size_report()["bytes"]
    report = story.journal.apply_retention(keep_days=None, max_bytes=before // 2)
    assert report["bytes"] <= before // 2
    assert not report["above_limit"]
    left = sessions(story)
    assert left == {turn.session_id for turn in turns[-len(left) :]}
    assert len(left) >= 5
    pages, free = (story.rows(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count"))
    assert free == 0
    assert pages * 4096 < before


def test_without_limits_nothing_is_deleted(story: Story) -> None:
    age(story, story.answer(), 1000)
    assert story.journal.apply_retention(None, None)["sessions"] == {"age": 0, "size": 0}


def test_a_session_that_comes_back_after_its_deletion_works(story: Story) -> None:
    turn = story.answer()
    age(story, turn, 10)
    story.journal.apply_retention(keep_days=5, max_bytes=None)
    child = story.answer(
        session_id=turn.session_id, parent_id=turn.turn_id, prompt_ids=[1, 2, 3, 4, 7, 8, 9, 5]
    )
    assert story.journal.read_request(child.turn_id).prompt_ids == [1, 2, 3, 4, 7, 8, 9, 5]


def test_the_size_report_names_rows_and_bytes_of_each_table(story: Story) -> None:
    for _ in range(3):
        story.answer(session_id=new_id())
    report = story.journal.size_report()
    assert report["tables"]["turns"]["rows"] == 3
    sizes = [table["bytes"] for table in report["tables"].values()]
    assert all(size is None for size in sizes) or sum(sizes) <= report["bytes"]
