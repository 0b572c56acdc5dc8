"""What every journal must do when a person deletes conversations; run on each implementation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from journal_story import (
    IMPLEMENTATIONS,
    LEASE,
    SCOPE,
    Story,
    assistant,
    finishing,
    holds,
    judgement,
    opening,
    user,
)

from rejoinder.errors import JournalError, UnknownTurn
from rejoinder.journal.records import AbortedTurn, KeptResponse, SampleSpec
from rejoinder.journal.sql import SqlJournal
from rejoinder.types import Fate, Message, Scope, TurnState

MARK = "kohlrabi"
"""What the deleted conversations are about, and nothing else."""
LONG = f"{MARK} " * 500
TABLES = [
    *("sessions", "turns", "prompts", "answers", "responses", "contents", "content_refs"),
    *("next_states", "judge_jobs", "verdicts", "hints", "feedback", "samples"),
]
OTHER = Scope("other", "local")


@pytest.fixture(params=IMPLEMENTATIONS)
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    with SqlJournal(f"{request.param}:///{tmp_path / 'journal.db'}") as journal:
        yield Story(journal)


def delete(story: Story, *turns: Any) -> Any:
    return story.journal.delete_sessions([turn.session_id for turn in turns])


def marked(text: str = MARK, **changes: Any) -> dict[str, Any]:
    """A turn in which nothing is said without the mark."""
    return {
        "messages": [Message("system", text), user(text)],
        "tools": f'[{{"name": "{text}"}}]',
        "options": f'{{"note": "{text}"}}',
        "finish": {"message": assistant(text)},
        **changes,
    }


def whole(story: Story, text: str = MARK) -> Any:
    """A conversation with a row in every table that can have one."""
    kept = KeptResponse(f'{{"text": "{text}"}}'.encode(), 0)
    turn = story.answer(
        **marked(text, finish={"message": assistant(text), "response": kept}),
        external_session=f"about {MARK}",
    )
    story.reply(turn, text)
    (task,) = story.claim()
    spec = SampleSpec(-1.0, (text,))
    said = judgement(-1)
    assert story.journal.commit_judgement(task, said, spec, None)
    story.journal.add_feedback(SCOPE, turn.completion_id, 0, 1, text).result(9)
    later = story.answer(**marked(text), session_id=turn.session_id, parent_id=turn.turn_id)
    story.reply(later, text)
    return turn


# --- what goes -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [MARK, LONG], ids=["short", "long"])
def test_nothing_of_a_deleted_conversation_is_in_any_file(
    story: Story, tmp_path: Path, text: str
) -> None:
    for number in range(30):  # so that rows are moved when others go
        story.answer(messages=[user(f"{number} " * 400)])
        delete(story, whole(story, text))
    last = whole(story, text)
    assert holds(tmp_path, MARK)
    delete(story, last)
    story.journal.scrub()
    assert not holds(tmp_path, MARK)
    assert story.count("sessions") == story.count("turns") == 30


def test_every_row_of_a_deleted_conversation_goes(story: Story) -> None:
    turn = whole(story)
    done = delete(story, turn)
    assert (done["sessions"], done["turns"], done["judgings"], done["waiting"]) == (1, 2, 1, 1)
    for table in TABLES:
        assert story.count(table) == 0, table
    assert story.journal.read_response(SCOPE, turn.completion_id) is None
    assert story.journal.explain_turn(turn.turn_id) == []


def test_what_another_conversation_has_too_stays(story: Story) -> None:
    gone, kept = (story.answer(messages=[user(LONG)], prompt_ids=range(1000)) for _ in "ab")
    delete(story, gone)
    request = story.journal.read_request(kept.turn_id)
    assert (request.messages, request.prompt_ids) == ((user(LONG),), list(range(1000)))


def test_a_dry_run_says_the_same_and_deletes_nothing(story: Story) -> None:
    turn = whole(story)
    before = {table: story.count(table) for table in ("sessions", "turns", "samples", "deletions")}
    told = story.journal.tally_sessions([turn.session_id])
    assert before == {table: story.count(table) for table in before}
    done = delete(story, turn)
    assert told == {name: done[name] for name in told}


def test_deleting_twice_is_no_error(story: Story) -> None:
    turn = story.answer()
    delete(story, turn)
    assert delete(story, turn)["sessions"] == 0


def test_what_no_longer_trains_is_counted_with_its_reason(story: Story) -> None:
    delete(story, whole(story))
    counted = story.journal.status("default", 4)["counters"]["retention"]
    assert counted == {"turns": {"asked": 2}, "judgings": {"asked": 1}, "samples": {"asked": 1}}


def test_a_reply_that_was_part_of_a_deleted_conversation_goes_from_where_it_was_read(
    story: Story, tmp_path: Path
) -> None:
    answer = story.answer()
    child = story.reply(answer, MARK)
    story.judge(-1, hints=[MARK])
    request = story.answer(turn_id=child, parent_id=answer.turn_id, **marked())
    delete(story, request)
    story.journal.scrub()
    assert not holds(tmp_path, MARK)
    assert story.fate_of(answer) == (TurnState.ENDED, Fate.DELETED)
    assert story.sample_fate(answer) == Fate.DELETED
    assert story.take() == []


# --- which -----------------------------------------------------------------------------------


def test_sessions_are_found_by_id_and_by_what_their_client_calls_them(story: Story) -> None:
    turn = story.answer(external_session="mine")
    for name in (turn.session_id, "mine"):
        assert story.journal.find_sessions([name, name]) == [turn.session_id]


def test_a_name_that_is_not_known_is_refused(story: Story) -> None:
    turn = story.answer()
    for names, tenant in ((["nonsense", turn.session_id], None), ([turn.session_id], "other")):
        with pytest.raises(JournalError, match="there is no session"):
            story.journal.find_sessions(names, tenant)


def test_a_name_that_several_people_use_is_refused_until_it_says_whose(story: Story) -> None:
    mine = story.answer(external_session="chat")
    yours = story.answer(external_session="chat", scope=OTHER)
    with pytest.raises(JournalError, match="several people's clients"):
        story.journal.find_sessions(["chat"])
    assert story.journal.find_sessions(["chat"], "other") == [yours.session_id]
    assert story.journal.find_sessions([mine.session_id]) == [mine.session_id]


def test_all_of_a_tenant_a_key_or_a_user_are_found(story: Story) -> None:
    scopes = [Scope("local", "local"), Scope("a", "k"), Scope("a", "k", "ann"), Scope("a", "l")]
    ids = [story.answer(scope=scope).session_id for scope in scopes]
    find = story.journal.find_sessions
    assert find([], "a") == sorted(ids[1:])
    assert find([], key="k") == sorted(ids[1:3])
    assert find([], "a", "k", "ann") == [ids[2]]
    assert find([], "nobody") == []


# --- while the system runs -------------------------------------------------------------------


def test_a_turn_that_is_being_answered_goes_and_the_journal_says_why(story: Story) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    story.journal.flush()
    assert delete(story, turn)["answering"] == 1
    with pytest.raises(UnknownTurn, match="its conversation was deleted"):
        story.journal.finish_turn(finishing(turn)).result(9)
    with pytest.raises(UnknownTurn):
        story.journal.abort_turn(AbortedTurn(turn.turn_id, Fate.CLIENT_GONE)).result(9)
    assert story.count("sessions") == story.count("answers") == 0


def test_a_request_that_was_accepted_before_does_not_bring_its_conversation_back(
    story: Story,
) -> None:
    turn = story.answer(external_session="mine")
    late = opening(session_id=turn.session_id, external_session="mine", parent_id=turn.turn_id)
    delete(story, turn)
    other = opening()
    story.journal.open_turn(late)  # only now: its gateway was slow
    story.journal.open_turn(other)
    with pytest.raises(UnknownTurn, match="its conversation was deleted"):
        story.journal.finish_turn(finishing(late)).result(9)
    story.journal.finish_turn(finishing(other)).result(9)  # in one batch with it
    with pytest.raises(UnknownTurn):
        story.journal.add_next_state(next_state(turn, late)).result(9)
    assert story.journal.find_session(SCOPE, "mine") is None
    assert story.count("turns") == 1


@pytest.mark.parametrize("in_one_batch", [True, False])
def test_nor_does_it_reply_to_a_turn_of_another_conversation(
    story: Story, in_one_batch: bool
) -> None:
    """One request with several prompts can reply to several conversations and is part of one."""
    turn, elsewhere = story.answer(), story.answer()
    late = opening(session_id=turn.session_id, parent_id=elsewhere.turn_id)
    delete(story, turn)
    story.journal.open_turn(late)
    if not in_one_batch:
        story.journal.flush()
    with pytest.raises(UnknownTurn, match="its conversation was deleted"):
        story.journal.add_next_state(next_state(elsewhere, late)).result(9)
    assert story.count("next_states") == story.count("judge_jobs") == 0


def next_state(turn: Any, child: Any) -> Any:
    from rejoinder.journal.records import NextState

    return NextState(turn.turn_id, child.turn_id, [user("late")], b"late")


def test_a_later_request_of_the_same_name_is_a_new_conversation(story: Story) -> None:
    turn = story.sample(external_session="mine", finish={"answer_chain": b"known"})
    delete(story, turn)
    assert story.journal.find_chains(SCOPE, [b"known"]) == []
    time.sleep(0.001)
    again = story.answer(session_id=turn.session_id, external_session="mine")
    story.reply(again)
    story.judge(1)
    assert [sample.turn_id for sample in story.take()] == [again.turn_id]
    assert story.journal.find_session(SCOPE, "mine") == turn.session_id


def test_a_deletion_before_the_clock_was_set_back_does_not_keep_later_requests_out(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = story.answer(external_session="mine")
    now = time.time()
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: now + 3600)
        delete(story, turn)
    story.answer(session_id=turn.session_id, external_session="mine")
    assert story.count("turns") == 1


def test_feedback_for_a_deleted_answer_finds_nothing(story: Story) -> None:
    turn = story.answer()
    delete(story, turn)
    given = story.journal.add_feedback(SCOPE, turn.completion_id, 0, 1, MARK).result(9)
    assert given.outcome == "unknown"


def test_a_judge_that_reads_a_deleted_reply_commits_nothing(story: Story) -> None:
    turn = story.answer()
    story.reply(turn)
    (task,) = story.claim()
    delete(story, turn)
    story.journal.retry_judging(task, 0.0, "again")
    spec = SampleSpec(1.0)
    assert not story.journal.commit_judgement(task, judgement(1), spec, None)
    assert story.claim() == []


def test_a_step_that_holds_a_deleted_sample_is_refused_and_taken_without_it(story: Story) -> None:
    gone, kept = story.sample(), story.sample()
    step, fence = story.step(story.take()), story.lease()
    delete(story, gone)
    with pytest.raises(JournalError, match="1 samples of the step were cancelled"):
        story.journal.commit_step(LEASE, fence, step)
    assert [sample.turn_id for sample in story.take()] == [kept.turn_id]


def trained_twice(story: Story) -> Any:
    story.sample()
    story.train()
    turn = story.sample()
    story.train()
    story.sample()
    story.train()
    return turn


def test_what_has_trained_is_told_with_the_version_before(story: Story) -> None:
    done = delete(story, trained_twice(story))
    assert done["trained"] == 1
    (learnt,) = done["learnt"]
    assert learnt == {"policy": "default", "versions": [2], "live": 3, "holds": True, "back_to": 1}


def test_a_version_whose_weights_are_gone_is_no_way_back(story: Story) -> None:
    turn = trained_twice(story)
    story.journal.forget_files("default", 1)
    assert delete(story, turn)["learnt"][0]["back_to"] == 0


def test_after_a_rollback_the_live_version_does_not_hold_it(story: Story) -> None:
    turn = trained_twice(story)
    story.journal.rollback("default", 1, replay=True)
    learnt = delete(story, turn)["learnt"][0]
    assert (learnt["live"], learnt["holds"], learnt["back_to"]) == (1, False, None)


def test_what_a_step_used_up_without_changing_weights_has_taught_nothing(story: Story) -> None:
    turn = story.sample()
    story.train_of({turn.turn_id: "no_signal"})
    done = delete(story, turn)
    assert (done["trained"], done["learnt"]) == (0, [])


def rewind(story: Story) -> None:
    story.journal.rewind(LEASE, story.lease(), story.lineage(), 0)


def replay(story: Story) -> None:
    story.journal.rollback("default", 0, replay=True)


@pytest.mark.parametrize("go_back", [rewind, replay])
def test_no_way_back_lets_a_deleted_sample_train_again(
    story: Story, go_back: Callable[[Story], None]
) -> None:
    gone, kept = story.sample(), story.sample()
    story.train()
    delete(story, gone)
    go_back(story)
    assert [sample.turn_id for sample in story.take()] == [kept.turn_id]
