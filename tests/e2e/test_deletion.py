"""Deleting conversations by the real command, while another process has the journal open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_story import Story, assistant, holds, opening, user
from running import rejoinder

from rejoinder.errors import EXIT_REFUSED
from rejoinder.journal.sql import SqlJournal
from rejoinder.types import Scope

pytestmark = pytest.mark.e2e

MARK = "kohlrabi"


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    """What a gateway, a judge and a trainer have written and go on writing."""
    with SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        yield Story(journal)


def said(home: Path, *arguments: str) -> str:
    done = rejoinder(home, "records", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_deleted_conversation_is_in_no_file_and_the_command_says_what_it_has_taught(
    tmp_path: Path, story: Story
) -> None:
    about = {"messages": [user(f"{MARK} " * 300)], "finish": {"message": assistant(MARK)}}
    kept = story.sample()
    story.train()
    trained = story.sample(external_session="mine", **about)
    story.train()
    story.reply(story.answer(session_id=trained.session_id, external_session="mine", **about))
    story.sample(session_id=trained.session_id, external_session="mine", **about)
    still_open = opening(session_id=trained.session_id, messages=[user(MARK)])
    story.journal.open_turn(still_open)
    story.journal.flush()

    told = said(tmp_path, "delete", "mine", "--dry-run")
    for line in (
        "1 session, 4 turns",
        "1 being answered",
        "1 waiting for the judge",
        "1 samples waiting to train",
        "1 samples that have trained",
        "versions 2 learnt from them, which cannot be undone; the newest version from before is 1",
        "nothing was deleted",
    ):
        assert line in told, told
    assert story.ready() == 1
    done = rejoinder(tmp_path, "records", "delete", "mine")  # asks, and nobody answers
    assert done.returncode != 0
    assert holds(tmp_path, MARK)

    told = said(tmp_path, "delete", "mine", "--yes")
    assert "1 session, 4 turns deleted" in told
    assert "rejoinder policy rollback 1 --policy default" in told
    assert not holds(tmp_path, MARK)
    assert story.ready() == 0
    assert [one[0] for one in story.rows("SELECT session_id FROM sessions")] == [kept.session_id]
    story.answer()  # the other process writes on
    done = rejoinder(tmp_path, "records", "delete", "mine", "--yes")
    assert done.returncode == EXIT_REFUSED
    assert "there is no session 'mine'" in done.stderr
    counters = json.loads(rejoinder(tmp_path, "status", "--json").stdout)["counters"]
    assert counters["retention"]["samples"] == {"asked": 1}


def test_all_of_a_tenant_go_and_nobody_elses(tmp_path: Path, story: Story) -> None:
    mine = story.answer()
    for number in range(45):
        text = f"{MARK} {number}."
        story.answer(scope=Scope("guests", "k", f"user {number % 3}"), messages=[user(text)])
    assert "15 sessions, 15 turns deleted" in said(
        tmp_path, "delete", "--tenant", "guests", "--user", "user 1", "--yes"
    )
    assert holds(tmp_path, f"{MARK} 0.")
    assert not holds(tmp_path, f"{MARK} 1.")
    assert "30 sessions, 30 turns deleted" in said(
        tmp_path, "delete", "--tenant", "guests", "--yes"
    )
    assert not holds(tmp_path, MARK)
    assert [one[0] for one in story.rows("SELECT session_id FROM sessions")] == [mine.session_id]
    assert "holds nothing that was deleted" in said(tmp_path, "scrub")
