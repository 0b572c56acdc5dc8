"""What every journal must say of the conversations it has; run on each implementation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_story import IMPLEMENTATIONS, SCOPE, Story, opening, user

from rejoinder.journal.sql import SqlJournal
from rejoinder.types import Message, Scope


@pytest.fixture(params=IMPLEMENTATIONS)
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    with SqlJournal(f"{request.param}:///{tmp_path / 'journal.db'}") as journal:
        yield Story(journal)


def test_the_conversations_with_the_newest_turns_come_first(story: Story) -> None:
    old, middle, new = (story.answer(created_at=float(time)) for time in (100, 200, 300))
    story.answer(session_id=old.session_id, parent_id=old.turn_id, created_at=400.0)
    found = story.journal.list_sessions(10)
    assert [(one["session"], one["turns"]) for one in found] == [
        (old.session_id, 2),
        (new.session_id, 1),
        (middle.session_id, 1),
    ]
    assert [one["session"] for one in story.journal.list_sessions(1)] == [old.session_id]


def test_it_begins_with_what_was_asked_first(story: Story) -> None:
    first = story.answer(
        messages=[Message("system", "Be brief."), user("What is a tide?")], external_session="tides"
    )
    asked = [*first.messages, Message("assistant", "Paris."), user("No!")]
    story.answer(messages=asked, session_id=first.session_id, parent_id=first.turn_id)
    (found,) = story.journal.list_sessions(10)
    assert found["begins"] == {"role": "user", "text": "What is a tide?"}
    assert (found["external"], found["tenant"], found["closed_at"]) == ("tides", "local", None)


def test_others_conversations_are_left_out_where_one_says_whose(story: Story) -> None:
    mine = story.answer()
    theirs = story.answer(scope=Scope("guests", "front desk", "ann"))
    story.journal.flush()
    sessions = {mine.session_id: SCOPE.tenant, theirs.session_id: "guests"}
    assert {one["session"]: one["tenant"] for one in story.journal.list_sessions(9)} == sessions
    for narrowed in ({"tenant": "guests"}, {"key": "front desk"}, {"user": "ann"}):
        (found,) = story.journal.list_sessions(9, **narrowed)
        assert found["session"] == theirs.session_id
    assert story.journal.list_sessions(9, tenant="guests", user="bob") == []


def test_one_that_is_being_answered_is_there_and_a_deleted_one_is_not(story: Story) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    story.journal.flush()
    assert [one["session"] for one in story.journal.list_sessions(9)] == [turn.session_id]
    story.journal.delete_sessions([turn.session_id])
    assert story.journal.list_sessions(9) == []
