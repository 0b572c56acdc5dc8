"""What every journal must do with responses that clients ask for again or go on from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_story import IMPLEMENTATIONS, SCOPE, Story, assistant, finishing, opening, user

from rejoinder.errors import JournalError
from rejoinder.journal.records import AbortedTurn, KeptResponse
from rejoinder.journal.sql import SqlJournal
from rejoinder.types import Fate, Message, Scope

BODY = b'{"id":"resp_1"}'
ASKED = [
    Message("system", "Be brief."),
    Message("system", "Speak of France."),
    user("What is the capital?"),
]


@pytest.fixture(params=IMPLEMENTATIONS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:///{tmp_path / 'journal.db'}"


@pytest.fixture
def story(url: str) -> Iterator[Story]:
    with SqlJournal(url) as journal:
        yield Story(journal)


def keep(story: Story, own: int = 1, **changes):
    return story.answer(
        completion_id="resp_1",
        finish={"response": KeptResponse(BODY, own)},
        **{"messages": ASKED, **changes},
    )


def test_a_kept_response_comes_back_as_it_was_sent(story: Story) -> None:
    keep(story)
    assert story.journal.read_response(SCOPE, "resp_1") == BODY


def test_what_responses_have_in_common_is_kept_once(story: Story) -> None:
    tools = b'[{"name":"weather"},' + b'"x",' * 5000 + b"{}]"
    bodies = {f"resp_{i}": b'{"id":%d,"tools":%b,"text":"\xc3\xa9"}' % (i, tools) for i in range(5)}
    common = (b"null", b"not in it" * 5000, tools)
    for name, body in bodies.items():
        response = KeptResponse(body, 0, common)
        story.answer(completion_id=name, finish={"response": response})
    assert {name: story.journal.read_response(SCOPE, name) for name in bodies} == bodies
    with story.journal.database.connect() as connection:
        sizes = connection.exec_driver_sql("SELECT sum(length(body)) FROM responses").scalar_one()
        known = connection.exec_driver_sql(
            "SELECT count(*) FROM contents WHERE length(data) > 10000"
        ).scalar_one()
    assert sizes < 1000
    assert known == 1


def test_an_answer_that_was_not_to_be_kept_is_no_response(story: Story) -> None:
    story.answer(completion_id="resp_1")
    assert story.journal.read_response(SCOPE, "resp_1") is None
    assert story.journal.read_earlier(SCOPE, "resp_1") is None
    assert story.journal.delete_response(SCOPE, "resp_1").result(9) is False


def test_a_later_request_goes_on_without_the_instructions_of_the_earlier_one(story: Story) -> None:
    turn = keep(story)
    earlier = story.journal.read_earlier(SCOPE, "resp_1")
    assert earlier is not None
    assert earlier.turn_id == turn.turn_id
    assert earlier.messages == (*ASKED[1:], assistant("Paris."))


def test_without_instructions_all_messages_go_on(story: Story) -> None:
    keep(story, own=0)
    earlier = story.journal.read_earlier(SCOPE, "resp_1")
    assert earlier is not None
    assert earlier.messages == (*ASKED, assistant("Paris."))


@pytest.mark.parametrize("other", [Scope("acme", "local"), Scope("local", "alice")])
def test_another_tenant_or_key_neither_reads_nor_deletes_it(story: Story, other: Scope) -> None:
    keep(story)
    assert story.journal.read_response(other, "resp_1") is None
    assert story.journal.read_earlier(other, "resp_1") is None
    assert story.journal.delete_response(other, "resp_1").result(9) is False
    assert story.journal.read_response(SCOPE, "resp_1") == BODY


def test_another_user_of_the_key_may_go_on(story: Story) -> None:
    keep(story)
    assert story.journal.read_earlier(Scope("local", "local", "bob"), "resp_1") is not None


def test_a_deleted_response_is_gone_and_its_turn_stays(story: Story) -> None:
    turn = keep(story)
    assert story.journal.delete_response(SCOPE, "resp_1").result(9) is True
    assert story.journal.read_response(SCOPE, "resp_1") is None
    assert story.journal.read_earlier(SCOPE, "resp_1") is None
    assert story.journal.read_answers([turn.turn_id]) == {turn.turn_id: assistant("Paris.")}


def test_it_survives_the_process(url: str) -> None:
    with SqlJournal(url) as journal:
        keep(Story(journal))
    with SqlJournal(url) as journal:
        earlier = journal.read_earlier(SCOPE, "resp_1")
        assert journal.read_response(SCOPE, "resp_1") == BODY
    assert earlier is not None
    assert earlier.messages[-1] == assistant("Paris.")


def test_it_goes_with_its_conversation(story: Story) -> None:
    turn = keep(story)
    story.journal.close_session(turn.session_id, "done").result(9)
    assert story.journal.apply_retention(1e-9, None)["turns"]["age"] == 1
    assert story.journal.read_response(SCOPE, "resp_1") is None


def test_an_answer_that_is_refused_leaves_nothing(story: Story) -> None:
    turn = opening(completion_id="resp_1")
    story.journal.open_turn(turn)
    story.journal.abort_turn(AbortedTurn(turn.turn_id, Fate.CLIENT_GONE)).result(9)
    with pytest.raises(JournalError):
        story.journal.finish_turn(finishing(turn, response=KeptResponse(BODY, 0))).result(9)
    assert story.journal.read_response(SCOPE, "resp_1") is None
