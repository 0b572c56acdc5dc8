"""What every journal must do; run on each implementation."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journal_story import (
    IMPLEMENTATIONS,
    LEASE,
    POLICY,
    SCOPE,
    Story,
    assistant,
    finishing,
    judgement,
    opening,
    unique,
    user,
)

from rejoinder.algorithms import build_algorithm
from rejoinder.config import TrainerConfig
from rejoinder.errors import JournalError, LeaseLost
from rejoinder.journal import fitting
from rejoinder.journal.records import (
    AbortedTurn,
    NextState,
    RoleReport,
    RollbackCause,
    SampleSpec,
)
from rejoinder.journal.sql import SqlJournal
from rejoinder.types import (
    Fate,
    Judgement,
    Message,
    Sampling,
    Scope,
    TurnState,
    TurnType,
    VersionRun,
    VersionState,
    Vote,
    new_id,
)


@pytest.fixture(params=IMPLEMENTATIONS)
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    with SqlJournal(f"{request.param}:///{tmp_path / 'journal.db'}") as journal:
        yield Story(journal)


# --- serving ---------------------------------------------------------------------------------


def test_an_answered_main_turn_waits_for_its_next_state(story: Story) -> None:
    turn = story.answer()
    assert story.fate_of(turn) == (TurnState.WAITING, None)


def test_an_answer_is_found_by_its_chain(story: Story) -> None:
    turn = story.answer(external_session="s1", finish={"answer_chain": b"known"})
    (match,) = story.journal.find_chains(SCOPE, [b"other", b"known"])
    assert (match.turn_id, match.session_id) == (turn.turn_id, turn.session_id)
    assert (match.external_session, match.chain, match.superseded) == ("s1", b"known", False)


@pytest.mark.parametrize(
    "other", [Scope("other", "local"), Scope("local", "other"), Scope("local", "local", "other")]
)
def test_another_tenant_key_or_user_finds_nothing(story: Story, other: Scope) -> None:
    turn = story.answer(external_session="s1", finish={"answer_chain": b"known"})
    assert story.journal.find_chains(other, [b"known"]) == []
    assert story.journal.find_same_request(other, turn.request_chain, None) == []
    for name in ("s1", turn.session_id):
        assert story.journal.find_session(other, name) is None


def test_what_is_found_says_under_which_trace_it_was_asked_for(story: Story) -> None:
    turn = opening(trace=b"t" * 16)
    story.journal.open_turn(turn)
    (queued,) = story.journal.find_same_request(SCOPE, turn.request_chain, None)
    story.journal.finish_turn(finishing(turn, answer_chain=b"known")).result(9)
    (known,) = story.journal.find_same_request(SCOPE, turn.request_chain, None)
    (match,) = story.journal.find_chains(SCOPE, [b"known"])
    (in_session,) = story.journal.find_chains(SCOPE, [b"known"], turn.session_id)
    assert {queued.trace, known.trace, match.trace, in_session.trace} == {b"t" * 16}


def test_answers_are_read_back_as_they_were_said(story: Story) -> None:
    long = assistant("word " * 1000)
    turn, other = story.answer(finish={"message": long}), story.answer()
    broken = opening()
    story.journal.open_turn(broken)
    story.journal.abort_turn(AbortedTurn(broken.turn_id, Fate.CLIENT_GONE)).result(9)
    found = story.journal.read_answers([turn.turn_id, other.turn_id, broken.turn_id, "unknown"])
    assert found == {turn.turn_id: long, other.turn_id: assistant("Paris.")}


def test_the_ids_of_a_turn_are_read_back_exactly(story: Story) -> None:
    turn = story.answer(prompt_ids=[1, 2, 3])
    later = story.answer(
        session_id=turn.session_id, parent_id=turn.turn_id, prompt_ids=[1, 2, 3, 7, 8, 9, 4]
    )
    still_open = opening()
    story.journal.open_turn(still_open)
    story.journal.flush()
    assert story.journal.read_turn_ids(turn.turn_id) == ([1, 2, 3], [7, 8, 9])
    assert story.journal.read_turn_ids(later.turn_id) == ([1, 2, 3, 7, 8, 9, 4], [7, 8, 9])
    assert story.journal.read_turn_ids(still_open.turn_id) is None
    assert story.journal.read_turn_ids("unknown") is None


def test_an_open_turn_is_not_found_by_a_chain_before_it_is_answered(story: Story) -> None:
    story.journal.open_turn(opening())
    story.journal.flush()
    assert story.journal.find_chains(SCOPE, [b"known"]) == []


def test_a_long_history_finds_the_matches_of_every_prefix(story: Story) -> None:
    turns = [story.answer(finish={"answer_chain": f"c{i}".encode()}) for i in range(30)]
    found = story.journal.find_chains(SCOPE, [f"c{i}".encode() for i in range(30)])
    assert {match.turn_id for match in found} == {turn.turn_id for turn in turns}


@pytest.mark.parametrize("session", [None, "s1"])
def test_side_turns_with_the_same_answer_do_not_hide_a_main_one(
    story: Story, session: str | None
) -> None:
    here = {"external_session": "s1", "session_id": "s-1", "finish": {"answer_chain": b"hi"}}
    main = story.answer(**here)
    for _ in range(20):
        story.answer(**here, turn_type=TurnType.SIDE)
    found = story.journal.find_chains(SCOPE, [b"hi"], session)
    assert [match.turn_id for match in found if not match.side] == [main.turn_id]
    assert any(match.side for match in found)


def test_a_named_session_finds_its_own_turn_among_many_alike(story: Story) -> None:
    mine = story.answer(
        external_session="mine", session_id="s-mine", finish={"answer_chain": b"hi"}
    )
    for i in range(20):
        names = {"external_session": f"x{i}", "session_id": f"s{i}"}
        story.answer(**names, finish={"answer_chain": b"hi"})
    for name in ("mine", "s-mine"):
        found = story.journal.find_chains(SCOPE, [b"hi"], name)
        assert [match.turn_id for match in found] == [mine.turn_id]


def test_the_same_request_is_found_at_once_and_after_its_commit(story: Story) -> None:
    turn = opening(external_session="s1")
    story.journal.open_turn(turn)
    (queued,) = story.journal.find_same_request(SCOPE, turn.request_chain, "s1")
    assert queued.open
    for name in ("s1", turn.session_id):
        assert story.journal.find_session(SCOPE, name) == turn.session_id
    story.journal.finish_turn(finishing(turn)).result(9)
    for name in ("s1", turn.session_id):
        assert story.journal.find_session(SCOPE, name) == turn.session_id
    (known,) = story.journal.find_same_request(SCOPE, turn.request_chain, None)
    assert (known.turn_id, known.open) == (turn.turn_id, False)
    assert story.journal.find_same_request(SCOPE, turn.request_chain, "s2") == []


@pytest.mark.parametrize(
    ("changes", "fate"),
    [
        ({"turn_type": TurnType.SIDE}, Fate.SIDE),
        ({"fate": Fate.SAMPLING_NOT_TRAINABLE}, Fate.SAMPLING_NOT_TRAINABLE),
    ],
)
def test_a_served_only_turn_ends_when_answered_and_is_never_judged(
    story: Story, changes: dict[str, object], fate: Fate
) -> None:
    turn = story.answer(finish={"answer_chain": b"known"}, **changes)
    assert story.fate_of(turn) == (TurnState.ENDED, fate)
    assert story.journal.find_chains(SCOPE, [b"known"]), "it may still be a parent"
    story.reply(turn)
    assert story.claim() == []


@pytest.mark.parametrize(
    "logprobs",
    [[-0.1, -0.2], [-0.1, -0.2, math.nan], [-0.1, -math.inf, -0.2], [math.inf, -math.inf, -0.2]],
)
def test_an_id_without_a_finite_logprob_never_trains(story: Story, logprobs: list[float]) -> None:
    turn = story.answer(finish={"logprobs": logprobs})
    assert story.fate_of(turn) == (TurnState.ENDED, Fate.MISSING_LOGPROBS)


def test_ids_whose_version_is_unknown_never_train(story: Story) -> None:
    turn = story.answer(finish={"versions": [VersionRun(0, 2)]})
    assert story.fate_of(turn) == (TurnState.ENDED, Fate.MISSING_LOGPROBS)


def test_an_empty_answer_never_trains(story: Story) -> None:
    turn = story.answer(finish={"answer_ids": [], "logprobs": [], "versions": []})
    assert story.fate_of(turn) == (TurnState.ENDED, Fate.EMPTY_ANSWER)


def test_an_aborted_turn_keeps_what_was_sampled_and_never_trains(story: Story) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    aborted = AbortedTurn(turn.turn_id, Fate.CLIENT_GONE, [7], [-0.5], [VersionRun(0, 1)])
    story.journal.abort_turn(aborted).result(9)
    assert story.fate_of(turn) == (TurnState.ABORTED, Fate.CLIENT_GONE)
    assert story.rows("SELECT answer_tokens FROM turns") == [(1,)]
    story.reply(turn)
    assert story.claim() == []


def test_aborting_an_answered_turn_changes_nothing(story: Story) -> None:
    turn = story.answer()
    story.journal.abort_turn(AbortedTurn(turn.turn_id, Fate.CLIENT_GONE)).result(9)
    assert story.fate_of(turn) == (TurnState.WAITING, None)


def test_finishing_an_aborted_turn_is_refused(story: Story) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    story.journal.abort_turn(AbortedTurn(turn.turn_id, Fate.TIMED_OUT)).result(9)
    with pytest.raises(JournalError):
        story.journal.finish_turn(finishing(turn)).result(9)
    assert story.fate_of(turn) == (TurnState.ABORTED, Fate.TIMED_OUT)


def test_finishing_a_turn_twice_is_refused(story: Story) -> None:
    turn = story.answer()
    with pytest.raises(JournalError):
        story.journal.finish_turn(finishing(turn)).result(9)


def test_a_restart_aborts_what_dead_processes_left_open(story: Story) -> None:
    dead, alive, other = (opening(owner=owner) for owner in ("gw-1-a", "gw-1-b", "gw-2-a"))
    for turn in (dead, alive, other):
        story.journal.open_turn(turn)
    assert story.journal.abort_open_turns("gw-1", ["gw-1-b"]).result(9) == 1
    assert story.fate_of(dead) == (TurnState.ABORTED, Fate.PROCESS_KILLED)
    assert story.fate_of(alive)[0] == story.fate_of(other)[0] == TurnState.OPEN


def test_an_owner_prefix_is_no_pattern(story: Story) -> None:
    turn = opening(owner="gwX1")
    story.journal.open_turn(turn)
    assert story.journal.abort_open_turns("gw_", []).result(9) == 0


def test_prompt_messages_and_tools_come_back_exactly(story: Story) -> None:
    messages = [
        Message("system", "Be brief. " * 200),
        user("Grüße 🙂 " * 100),
        Message("tool", "ok", name="search", tool_call_id="c1"),
    ]
    turn = story.answer(messages=messages, tools='[{"type":"function"}]', prompt_ids=range(2000))
    request = story.journal.read_request(turn.turn_id)
    assert request.prompt_ids == list(range(2000))
    assert list(request.messages) == messages
    assert request.tools == '[{"type":"function"}]'


# --- next states and judging -----------------------------------------------------------------


def test_judging_is_queued_when_the_next_request_arrives(story: Story) -> None:
    turn = story.answer(messages=[user("2+2?")], finish={"message": assistant("5")})
    story.reply(turn, "That is wrong")
    assert story.fate_of(turn) == (TurnState.JUDGING, None)
    (task,) = story.claim()
    assert task.context == (user("2+2?"),)
    assert task.answer == assistant("5")
    assert task.next_state == (user("That is wrong"),)
    assert (task.turn_id, task.tenant, task.policy) == (turn.turn_id, "local", POLICY)
    assert task.attempt == 1


def test_all_messages_of_a_next_state_reach_the_judge(story: Story) -> None:
    turn = story.answer()
    messages = [Message("tool", "error", tool_call_id="a"), Message("tool", "ok", tool_call_id="b")]
    story.journal.add_next_state(NextState(turn.turn_id, new_id(), messages, b"d")).result(9)
    assert list(story.claim()[0].next_state) == messages


def test_a_next_state_before_the_answer_is_judged_after_it(story: Story) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    story.reply(turn)
    assert story.claim() == []
    story.journal.finish_turn(finishing(turn)).result(9)
    assert story.fate_of(turn) == (TurnState.JUDGING, None)
    assert len(story.claim(9)) == 1


def test_open_answer_and_next_state_in_one_batch_are_applied_in_order(story: Story) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    first = story.journal.add_next_state(NextState(turn.turn_id, new_id(), [user("no")], b"d"))
    second = story.journal.finish_turn(finishing(turn))
    first.result(9), second.result(9)
    assert story.fate_of(turn) == (TurnState.JUDGING, None)


def test_a_next_state_of_an_aborted_turn_is_recorded_and_not_judged(story: Story) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    story.reply(turn)
    story.journal.abort_turn(AbortedTurn(turn.turn_id, Fate.CLIENT_GONE)).result(9)
    assert story.claim() == []
    assert story.rows("SELECT outcome FROM next_states") == [(Fate.CLIENT_GONE,)]


def test_the_same_next_state_is_judged_once(story: Story) -> None:
    turn = story.answer()
    story.reply(turn, "No")
    assert story.judge(0)
    story.reply(turn, "No")
    assert story.claim() == []


def test_several_children_are_judged_until_one_decides(story: Story) -> None:
    turn = story.answer()
    story.reply(turn, "Hm")
    assert story.judge(0)
    assert story.fate_of(turn) == (TurnState.JUDGED, Fate.NEUTRAL)
    story.reply(turn, "Wrong!")
    assert story.fate_of(turn) == (TurnState.JUDGING, None)
    assert story.judge(-1)
    assert story.fate_of(turn) == (TurnState.SAMPLED, None)
    story.reply(turn, "Right!")
    assert story.claim() == []
    assert story.count("next_states") == 3


def test_a_second_decisive_verdict_is_recorded_and_makes_no_second_sample(story: Story) -> None:
    turn = story.answer()
    story.reply(turn, "Wrong!")
    story.reply(turn, "Right!")
    first, second = story.claim(2)
    assert story.journal.commit_judgement(first, judgement(-1), SampleSpec(-1.0), None)
    assert story.journal.commit_judgement(second, judgement(1), SampleSpec(1.0), None)
    assert story.count("verdicts") == 2
    assert story.rows("SELECT reward FROM samples") == [(-1.0,)]


def test_where_only_hints_teach_a_verdict_leaves_room_for_a_later_hint(story: Story) -> None:
    turn = story.answer()
    story.reply(turn, "Wrong!")
    story.reply(turn, "In one sentence, please.")
    first, second = story.claim(2)
    assert story.journal.commit_judgement(first, judgement(-1), None, Fate.NO_HINT)
    hinted = SampleSpec(None, ("In one sentence, please.",))
    assert story.journal.commit_judgement(second, judgement(-1), hinted, None)
    assert story.fate_of(turn) == (TurnState.SAMPLED, None)
    (found,) = story.take()
    assert found.hints == ("In one sentence, please.",)


def test_a_hint_without_a_clear_verdict_decides_too(story: Story) -> None:
    turn = story.answer()
    story.reply(turn, "In one sentence, please.")
    (first,) = story.claim()
    hinted = SampleSpec(None, ("In one sentence, please.",))
    assert story.journal.commit_judgement(first, judgement(0), hinted, None)
    story.reply(turn, "Without lists.")
    assert story.claim() == []


def test_a_turn_stays_in_judging_while_another_next_state_is_open(story: Story) -> None:
    turn = story.answer()
    story.reply(turn, "Hm")
    story.reply(turn, "Wrong!")
    assert story.judge(0)
    assert story.fate_of(turn) == (TurnState.JUDGING, None)
    assert story.judge(None)
    assert story.fate_of(turn) == (TurnState.JUDGED, Fate.NEUTRAL)


def test_no_verdict_is_not_neutral(story: Story) -> None:
    turn = story.answer()
    story.reply(turn)
    assert story.judge(None, why=Fate.NO_QUORUM)
    assert story.fate_of(turn) == (TurnState.NO_VERDICT, Fate.NO_QUORUM)
    assert story.rows("SELECT score, why FROM verdicts") == [(None, "no_quorum")]
    assert story.ready() == 0


def test_a_judgement_commits_once(story: Story) -> None:
    story.reply(story.answer())
    (task,) = story.claim()
    assert story.journal.commit_judgement(task, judgement(1), SampleSpec(1.0), None)
    assert not story.journal.commit_judgement(task, judgement(-1), SampleSpec(-1.0), None)
    assert story.rows("SELECT score FROM verdicts") == [(1,)]


def test_a_judge_whose_lease_was_taken_commits_nothing(story: Story) -> None:
    story.reply(story.answer())
    (old,) = story.journal.claim_judging("judge-1", 1, lease_s=-1)
    (new,) = story.journal.claim_judging("judge-2", 1, lease_s=60)
    assert new.fence > old.fence
    assert new.attempt == 2
    assert not story.journal.commit_judgement(old, judgement(-1), SampleSpec(-1.0), None)
    assert story.count("verdicts") == 0
    assert story.journal.commit_judgement(new, judgement(1), SampleSpec(1.0), None)


def test_claimed_jobs_are_not_claimed_again(story: Story) -> None:
    for _ in range(3):
        story.reply(story.answer())
    assert len(story.claim(2)) == 2
    assert len(story.claim(2)) == 1
    assert story.claim(2) == []


def test_jobs_are_claimed_oldest_first(story: Story) -> None:
    turns = [story.answer() for _ in range(3)]
    for turn in turns:
        story.reply(turn)
    assert [task.turn_id for task in story.claim(3)] == [turn.turn_id for turn in turns]


def test_a_job_given_back_is_claimed_again_after_its_time(story: Story) -> None:
    story.reply(story.answer())
    (task,) = story.claim()
    story.journal.retry_judging(task, 60, "timeout")
    assert story.claim() == []
    assert not story.journal.commit_judgement(task, judgement(1), SampleSpec(1.0), None)
    story.reply(story.answer())
    (task,) = story.claim()
    story.journal.retry_judging(task, 0, "timeout")
    assert story.claim()[0].attempt == 2


def test_a_job_given_back_untried_keeps_its_attempts(story: Story) -> None:
    story.reply(story.answer())
    for _ in range(3):
        (task,) = story.claim()
        assert task.attempt == 1
        story.journal.retry_judging(task, 0, "the engine is away", counts=False)


def test_hints_come_with_the_sample(story: Story) -> None:
    story.sample(-1)
    turn = story.answer()
    story.reply(turn)
    assert story.judge(-1, hints=["Answer in prose.", "Be brief."])
    first, second = story.take()
    assert first.hints == ()
    assert second.hints == ("Answer in prose.", "Be brief.")


def test_a_hinted_sample_brings_the_conversation_that_its_prompt_was_made_from(
    story: Story,
) -> None:
    story.sample(-1)
    turn = story.answer()
    story.reply(turn)
    assert story.judge(-1, hints=["Answer in prose."])
    plain, hinted = story.take()
    assert plain.messages == ()
    assert hinted.messages[-1].role == "user"
    assert hinted.prompt_ids
    assert (hinted.tools, hinted.options) == (None, None)


def test_a_hinted_sample_brings_the_arguments_of_its_template_as_they_were_given(
    story: Story,
) -> None:
    options = '{"enable_thinking":false,"a":[1.0,null,"\u00fc"]}'
    turn = story.answer(options=options)
    story.reply(turn)
    assert story.judge(-1, hints=["Answer in prose."])
    (hinted,) = story.take()
    assert hinted.options == options


# --- ends and reopening ----------------------------------------------------------------------


def test_a_closed_session_ends_waiting_turns_and_a_later_reply_reopens_them(story: Story) -> None:
    turn = story.answer()
    story.journal.close_session(turn.session_id, "done").result(9)
    assert story.fate_of(turn) == (TurnState.ENDED, Fate.NO_NEXT_STATE)
    story.reply(turn)
    assert story.fate_of(turn) == (TurnState.JUDGING, None)
    assert len(story.claim()) == 1


def test_only_idle_sessions_are_closed(story: Story) -> None:
    old = story.answer(created_at=1000.0)
    busy = opening(created_at=1000.0)
    story.journal.open_turn(busy)
    new = story.answer()
    assert story.journal.close_idle_sessions(60).result(9) == 1
    assert story.fate_of(old) == (TurnState.ENDED, Fate.NO_NEXT_STATE)
    assert story.fate_of(new)[0] == TurnState.WAITING
    assert story.fate_of(busy)[0] == TurnState.OPEN


def test_a_request_in_a_closed_session_reopens_the_session(story: Story) -> None:
    turn = story.answer()
    story.journal.close_session(turn.session_id, "done").result(9)
    story.answer(session_id=turn.session_id)
    assert story.rows("SELECT closed_at FROM sessions") == [(None,)]


def test_an_ambiguous_parent_ends_provisionally(story: Story) -> None:
    first, second = story.answer(), story.answer()
    story.journal.mark_ambiguous([first.turn_id, second.turn_id]).result(9)
    assert story.fate_of(first) == (TurnState.ENDED, Fate.AMBIGUOUS_PARENT)
    story.reply(first)
    assert story.fate_of(first) == (TurnState.JUDGING, None)


def test_superseding_cancels_judging_and_sample(story: Story) -> None:
    sampled, judging = story.sample(), story.answer()
    story.reply(judging)
    (task,) = story.claim()
    for turn in (sampled, judging):
        story.journal.supersede(turn.turn_id, new_id()).result(9)
        assert story.fate_of(turn) == (TurnState.ENDED, Fate.SUPERSEDED)
    assert not story.journal.commit_judgement(task, judgement(1), SampleSpec(1.0), None)
    assert story.sample_fate(sampled) == Fate.SUPERSEDED
    assert story.ready() == 0


def test_superseding_after_consumption_only_marks(story: Story) -> None:
    turn = story.sample()
    story.train()
    story.journal.supersede(turn.turn_id, "other").result(9)
    assert story.fate_of(turn) == (TurnState.SAMPLED, None)
    assert story.sample_fate(turn) is None
    assert story.rows("SELECT superseded_by FROM turns") == [("other",)]


def test_a_turn_superseded_while_open_ends_when_answered(story: Story) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    story.journal.supersede(turn.turn_id, new_id()).result(9)
    story.journal.finish_turn(finishing(turn, answer_chain=b"known")).result(9)
    assert story.fate_of(turn) == (TurnState.ENDED, Fate.SUPERSEDED)
    assert story.journal.find_chains(SCOPE, [b"known"])[0].superseded


def test_superseding_an_unknown_turn_is_refused(story: Story) -> None:
    with pytest.raises(JournalError, match="not in the journal"):
        story.journal.supersede("nothing", "other").result(9)


# --- feedback --------------------------------------------------------------------------------


def feedback(story: Story, turn, score: int, scope: Scope = SCOPE) -> str:
    return story.journal.add_feedback(scope, turn.completion_id, 0, score, "why").result(9).outcome


def test_feedback_makes_a_sample_without_a_judge(story: Story) -> None:
    turn = story.answer()
    assert feedback(story, turn, -1) == "accepted"
    assert story.fate_of(turn) == (TurnState.SAMPLED, None)
    assert [sample.reward for sample in story.take()] == [-1.0]


def test_feedback_cancels_judging_and_refuses_a_judgement_under_way(story: Story) -> None:
    turn = story.answer()
    story.reply(turn)
    (task,) = story.claim()
    assert feedback(story, turn, 1) == "accepted"
    assert not story.journal.commit_judgement(task, judgement(-1), SampleSpec(-1.0), None)
    assert [sample.reward for sample in story.take()] == [1.0]
    story.reply(turn, "another")
    assert story.claim() == []


def test_feedback_replaces_the_judges_score(story: Story) -> None:
    turn = story.sample(-1)
    assert feedback(story, turn, 1) == "accepted"
    assert [sample.reward for sample in story.take()] == [1.0]


def test_neutral_feedback_cancels_a_sample_and_a_later_score_revives_it(story: Story) -> None:
    turn = story.sample(1)
    assert feedback(story, turn, 0) == "accepted"
    assert story.fate_of(turn) == (TurnState.JUDGED, Fate.NEUTRAL)
    assert story.ready() == 0
    assert feedback(story, turn, -1) == "accepted"
    assert [sample.reward for sample in story.take()] == [-1.0]


def test_feedback_after_consumption_changes_nothing(story: Story) -> None:
    turn = story.sample(1)
    story.train()
    assert feedback(story, turn, -1) == Fate.LATE_FEEDBACK
    assert story.rows("SELECT reward FROM samples") == [(1.0,)]
    assert story.ready() == 0
    assert story.rows("SELECT outcome FROM feedback") == [("late_feedback",)]


def test_feedback_on_an_unfinished_answer_counts_when_it_is_finished(story: Story) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    assert feedback(story, turn, 1) == "accepted"
    assert story.ready() == 0
    story.journal.finish_turn(finishing(turn)).result(9)
    assert story.fate_of(turn) == (TurnState.SAMPLED, None)
    assert story.ready() == 1


def test_feedback_on_a_served_only_turn_never_trains(story: Story) -> None:
    turn = story.answer(turn_type=TurnType.SIDE)
    assert feedback(story, turn, 1) == "never_trains"
    assert story.fate_of(turn) == (TurnState.ENDED, Fate.SIDE)
    open_turn = opening(turn_type=TurnType.SIDE)
    story.journal.open_turn(open_turn)
    assert feedback(story, open_turn, 1) == "never_trains"
    assert story.ready() == 0


def test_feedback_on_an_answer_that_was_cut_off_is_told_to_have_no_effect(story: Story) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    aborted = AbortedTurn(turn.turn_id, Fate.CLIENT_GONE, [7], [-0.5], [VersionRun(0, 1)])
    story.journal.abort_turn(aborted).result(9)
    assert feedback(story, turn, 1) == "never_trains"
    assert story.ready() == 0


def test_feedback_on_an_answer_that_was_asked_anew_is_told_to_have_no_effect(story: Story) -> None:
    turn, again = story.answer(), story.answer()
    story.journal.supersede(turn.turn_id, again.turn_id).result(9)
    assert feedback(story, turn, 1) == "never_trains"
    assert feedback(story, again, 1) == "accepted"
    unfinished = opening()
    story.journal.open_turn(unfinished)
    story.journal.supersede(unfinished.turn_id, again.turn_id).result(9)
    assert feedback(story, unfinished, 1) == "never_trains"


def test_feedback_of_another_tenant_finds_nothing(story: Story) -> None:
    turn = story.answer()
    assert feedback(story, turn, 1, Scope("other", "local")) == "unknown"
    assert story.ready() == 0


def test_feedback_for_a_choice_that_does_not_exist_is_unknown(story: Story) -> None:
    turn = story.answer()
    result = story.journal.add_feedback(SCOPE, turn.completion_id, 1, 1, None).result(9)
    assert (result.outcome, result.turn_id) == ("unknown", None)


def test_a_feedback_score_out_of_range_is_refused(story: Story) -> None:
    turn = story.answer()
    with pytest.raises(JournalError, match="-1, 0 or"):
        story.journal.add_feedback(SCOPE, turn.completion_id, 0, 5, None).result(9)


# --- training --------------------------------------------------------------------------------


def test_a_sample_carries_exactly_what_was_sampled(story: Story) -> None:
    ids = list(range(100, 140))
    logprobs = [-1.0 / (i + 1) for i in range(40)]
    runs = [VersionRun(0, 25), VersionRun(0, 15)]
    turn = story.sample(
        prompt_ids=list(range(2000)),
        trajectory="task-1",
        sampling=Sampling(max_tokens=40, temperature=0.6, logit_bias={5: 1.0}, stop=("x",)),
        finish={"answer_ids": ids, "logprobs": logprobs, "versions": runs},
    )
    (sample,) = story.take(tokens=5000)
    assert sample.turn_id == turn.turn_id
    assert sample.session_id == turn.session_id
    assert sample.prompt_ids == list(range(2000))
    assert sample.answer_ids == ids
    assert sample.logprobs == pytest.approx(logprobs, abs=1e-7)
    assert sample.versions == tuple(runs)
    assert sample.oldest_version == 0
    assert (sample.temperature, sample.trajectory, sample.reward) == (0.6, "task-1", 1.0)


def test_samples_are_taken_oldest_first_and_the_surplus_stays(story: Story) -> None:
    turns = [story.sample() for _ in range(5)]
    taken = story.take(3)
    assert [sample.turn_id for sample in taken] == [turn.turn_id for turn in turns[:3]]
    story.commit(taken)
    assert [sample.turn_id for sample in story.take(9)] == [turn.turn_id for turn in turns[3:]]


def test_taking_without_a_commit_consumes_nothing(story: Story) -> None:
    story.sample()
    assert story.take() == story.take()
    assert story.ready() == 1


def test_too_long_samples_are_dropped_with_a_reason(story: Story) -> None:
    long, short = story.sample(prompt_ids=range(100)), story.sample()
    assert [sample.turn_id for sample in story.take(tokens=50)] == [short.turn_id]
    assert story.sample_fate(long) == Fate.LIMIT
    assert story.ready() == 1


def test_stale_samples_are_dropped_with_a_reason(story: Story) -> None:
    old = story.sample()
    for _ in range(2):
        story.commit([])
    assert story.ready(staleness=2) == 1
    assert story.ready(staleness=1) == 0
    new = story.sample(version=1)
    assert [sample.turn_id for sample in story.take(staleness=1)] == [new.turn_id]
    assert story.sample_fate(old) == Fate.STALE


def test_steps_that_changed_no_weights_make_no_sample_older(story: Story) -> None:
    kept = story.sample()
    for reason in ("all_alike", None, "no_signal"):  # the second one trained
        other = story.sample(version=story.lineage().head_version)
        (sample,) = [one for one in story.take() if one.turn_id == other.turn_id]
        files = {"uri": story.journal.versions(POLICY)[-1].uri} if reason else {}
        step = story.step([sample], **files)
        used = [replace(one, untrained=reason) for one in step.samples]
        story.journal.commit_step(LEASE, story.lease(), replace(step, samples=used))
    assert story.lineage().head_version == 3
    assert story.ready(staleness=0) == 0
    assert [one.turn_id for one in story.take(staleness=1)] == [kept.turn_id]


def test_after_a_crash_answers_of_lost_versions_are_as_old_as_their_steps(story: Story) -> None:
    """They ended as stale once the steps were taken again: twice the way counted."""
    for _ in range(5):
        story.commit([])
    kept, ahead = story.sample(version=3), story.sample(version=5)
    story.journal.rewind(LEASE, story.lease(), story.lineage(), 1)
    story.commit([])
    assert [one.turn_id for one in story.take(staleness=2)] == [kept.turn_id]
    assert story.sample_fate(ahead) == Fate.ORPHANED, "steps 3 to 5 are still to be taken again"
    story.commit([])  # step 3 again
    assert story.ready(staleness=0) == 1
    story.commit([])
    assert (story.ready(staleness=0), story.ready(staleness=1)) == (0, 1)


@pytest.mark.parametrize("moved_first", [True, False])
def test_a_step_that_is_taken_again_otherwise_is_another_step(
    story: Story, moved_first: bool
) -> None:
    """Another algorithm may learn from what taught nothing before: no two ages become one."""
    own, shared = {"uri": "/policies/own"}, {"uri": "/models/base"}
    story.commit([], **(own if moved_first else shared))
    lost, base = story.sample(version=1), story.sample(version=0)
    story.journal.rewind(LEASE, story.lease(), story.lineage(), 0)
    story.commit([], **(shared if moved_first else {"uri": "/policies/2"}))
    near = {one.turn_id for one in story.take(staleness=1)}
    assert near == {lost.turn_id, base.turn_id}
    assert story.ready(staleness=0) == (1 if moved_first else 0)


def test_samples_of_versions_that_were_rolled_back_say_so(story: Story) -> None:
    for _ in range(3):
        story.commit([])
    old, new = story.sample(version=0), story.sample(version=3)
    story.journal.rollback(POLICY, 1, replay=False)
    assert [one.turn_id for one in story.take(staleness=1)] == [old.turn_id]
    assert story.sample_fate(new) == Fate.ROLLED_BACK


def test_samples_of_a_version_that_is_served_again_are_stale_and_not_rolled_back(
    story: Story,
) -> None:
    """What the version comes from stayed rejected: its samples named a rollback that was undone."""
    for _ in range(3):
        story.commit([])
    between = story.sample(version=2)
    story.journal.rollback(POLICY, 1, replay=False)
    story.commit([])
    left = story.sample(version=4)
    story.journal.rollback(POLICY, 3, replay=False)
    states = [one.state for one in story.journal.versions(POLICY)]
    retired, live, rejected = VersionState.RETIRED, VersionState.LIVE, VersionState.REJECTED
    assert states == [retired, retired, retired, live, rejected]
    assert story.take(staleness=0) == []
    assert story.sample_fate(between) == Fate.STALE
    assert story.sample_fate(left) == Fate.ROLLED_BACK


def test_a_rollback_to_a_later_number_rejects_what_is_left_for_it(story: Story) -> None:
    """Only versions of higher numbers were rejected, whatever the version comes from."""
    story.commit([])
    story.journal.rollback(POLICY, 0, replay=False)
    for _ in range(2):
        story.commit([])
    story.journal.rollback(POLICY, 1, replay=False)
    story.journal.rollback(POLICY, 3, replay=False)
    story.journal.rollback(POLICY, 1, replay=False)
    assert [one.state for one in story.journal.versions(POLICY)] == [
        VersionState.RETIRED,
        VersionState.LIVE,
        VersionState.REJECTED,
        VersionState.REJECTED,
    ]
    story.journal.rollback(POLICY, 3, replay=False)
    assert [one.state for one in story.journal.versions(POLICY)] == [
        VersionState.RETIRED,
        VersionState.REJECTED,
        VersionState.RETIRED,
        VersionState.LIVE,
    ]


def test_samples_of_another_algorithm_are_put_aside_and_come_back_with_it(story: Story) -> None:
    """They filled batches in which nothing could teach."""
    plain, hinted = story.sample(-1), story.sample(-1, hints=["Be brief."])
    opd, binary = (build_algorithm(TrainerConfig(algorithm=name)) for name in ("opd", "binary"))
    fit = story.journal.fit_samples
    assert fit(LEASE, story.lease(), POLICY, binary) == 0
    assert fit(LEASE, story.lease(), POLICY, opd) == 1
    assert [one.turn_id for one in story.take()] == [hinted.turn_id]
    assert (story.ready(), story.sample_fate(plain)) == (1, Fate.OTHER_ALGORITHM)
    status = story.journal.status(POLICY, 4)["samples"]
    assert (status["ready"], status["dropped"]) == (1, {Fate.OTHER_ALGORITHM: 1})
    assert fit(LEASE, story.lease(), POLICY, opd) == 0
    assert fit(LEASE, story.lease(), POLICY, binary) == 0
    assert {one.turn_id for one in story.take()} == {plain.turn_id, hinted.turn_id}


def test_many_samples_are_put_aside_without_keeping_answers_waiting(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction for all of them held every answer up for seconds."""
    monkeypatch.setattr(fitting, "AT_ONCE", 2)
    most = []
    whole = fitting.fit_samples

    def noted(*args: Any, **changes: Any) -> int:
        most.append(len(changes["among"]))
        return whole(*args, **changes)

    monkeypatch.setattr(fitting, "fit_samples", noted)
    turns = [story.sample(-1) for _ in range(5)]
    opd, binary = (build_algorithm(TrainerConfig(algorithm=name)) for name in ("opd", "binary"))
    assert story.journal.fit_samples(LEASE, story.lease(), POLICY, opd) == len(turns)
    assert story.ready() == 0
    story.journal.fit_samples(LEASE, story.lease(), POLICY, binary)
    assert story.ready() == len(turns)
    assert most == [2, 2, 1] * 2


def test_what_a_version_has_learnt_waits_no_more_when_it_fits_again(story: Story) -> None:
    """Put aside when the rollback went to that version, it filled every batch and was refused."""
    story.sample(-1)
    story.train()
    story.journal.rollback(POLICY, 0, replay=True)
    opd, binary = (build_algorithm(TrainerConfig(algorithm=name)) for name in ("opd", "binary"))
    assert story.journal.fit_samples(LEASE, story.lease(), POLICY, opd) == 1
    story.journal.rollback(POLICY, 1, replay=False)
    story.journal.fit_samples(LEASE, story.lease(), POLICY, binary)
    new = story.sample(-1)
    assert [one.turn_id for one in story.take()] == [new.turn_id]
    assert story.ready() == 1


def test_what_was_superseded_while_put_aside_stays_away(story: Story) -> None:
    turn = story.sample(-1)
    opd, binary = (build_algorithm(TrainerConfig(algorithm=name)) for name in ("opd", "binary"))
    story.journal.fit_samples(LEASE, story.lease(), POLICY, opd)
    story.journal.supersede(turn.turn_id, opening().turn_id).result(9)
    story.journal.fit_samples(LEASE, story.lease(), POLICY, binary)
    assert story.ready() == 0


def test_only_the_trainer_that_holds_the_lease_puts_samples_aside(story: Story) -> None:
    story.sample(-1)
    rule = build_algorithm(TrainerConfig(algorithm="opd"))
    with pytest.raises(LeaseLost):
        story.journal.fit_samples(LEASE, story.lease() + 1, POLICY, rule)
    assert story.ready() == 1


def test_a_step_makes_its_version_live_and_consumes_its_samples(story: Story) -> None:
    story.sample(1), story.sample(-1)
    commit = story.train(checkpoint_uri="/c/1", metrics={"note": "first"})
    (live,) = story.journal.live_versions()
    assert (live.version, live.state) == (1, VersionState.LIVE)
    assert (live.checkpoint_uri, live.metrics) == ("/c/1", {"note": "first"})
    assert [version.state for version in story.journal.versions(POLICY)] == [
        VersionState.RETIRED,
        VersionState.LIVE,
    ]
    lineage = story.lineage()
    assert (lineage.head_version, lineage.next_step, lineage.next_version) == (1, 2, 2)
    assert lineage.lineage_id == commit.lineage_id
    assert story.ready() == 0
    assert story.rows("SELECT samples, mean_score FROM steps") == [(2, 0.0)]


def test_a_step_commits_exactly_once(story: Story) -> None:
    story.sample()
    fence = story.lease()
    commit = story.commit(story.take(), fence=fence)
    with pytest.raises(JournalError):
        story.journal.commit_step(LEASE, fence, commit)
    assert story.count("steps") == story.count("consumption") == 1


def test_a_sample_is_never_consumed_twice_in_a_lineage(story: Story) -> None:
    story.sample()
    samples = story.take()
    story.commit(samples)
    with pytest.raises(JournalError, match="consumed"):
        story.commit(samples)
    assert story.count("steps") == 1
    assert story.lineage().head_version == 1


def test_a_cancelled_sample_stops_the_step_that_holds_it(story: Story) -> None:
    turn = story.sample()
    samples = story.take()
    story.journal.supersede(turn.turn_id, new_id()).result(9)
    with pytest.raises(JournalError, match="cancelled"):
        story.commit(samples)
    assert story.count("steps") == 0


def test_a_sample_scored_otherwise_stops_the_step_that_was_computed_from_it(story: Story) -> None:
    turn = story.sample(1)
    samples = story.take()
    assert feedback(story, turn, -1) == "accepted"
    with pytest.raises(JournalError, match="scored otherwise"):
        story.commit(samples)
    assert story.count("steps") == story.count("consumption") == 0
    story.train()
    assert story.rows("SELECT mean_score FROM steps") == [(-1.0,)]


def test_the_same_score_from_a_person_stops_no_step(story: Story) -> None:
    turn = story.sample(1)
    samples = story.take()
    assert feedback(story, turn, 1) == "accepted"
    story.commit(samples)
    assert story.count("consumption") == 1


def test_a_trainer_without_the_lease_commits_nothing(story: Story) -> None:
    story.sample()
    old = story.journal.acquire_lease(LEASE, "trainer-1", ttl_s=-1)
    assert old is not None
    new = story.lease("trainer-2")
    assert new > old
    with pytest.raises(LeaseLost):
        story.commit(story.take(), fence=old)
    assert story.count("steps") == 0
    story.commit(story.take(), fence=new)


def test_a_held_lease_is_given_to_nobody_else(story: Story) -> None:
    fence = story.lease("trainer-1")
    assert story.journal.acquire_lease(LEASE, "trainer-2", 60) is None
    story.journal.renew_lease(LEASE, fence, 60)
    story.journal.release_lease(LEASE, fence)
    assert story.journal.acquire_lease(LEASE, "trainer-2", 60) == fence + 1
    with pytest.raises(LeaseLost):
        story.journal.renew_lease(LEASE, fence, 60)
    story.journal.release_lease(LEASE, fence)
    assert story.journal.acquire_lease(LEASE, "trainer-3", 60) is None


def test_a_rewind_orphans_versions_frees_their_samples_and_serves_the_checkpoint(
    story: Story,
) -> None:
    for _ in range(3):
        story.sample()
        story.train()
    fence = story.lease()
    freed = story.journal.rewind(LEASE, fence, story.lineage(), 1)
    assert freed == 2
    assert story.journal.live_versions()[0].version == 1
    assert [version.state for version in story.journal.versions(POLICY)] == [
        VersionState.RETIRED,
        VersionState.LIVE,
        VersionState.ORPHANED,
        VersionState.ORPHANED,
    ]
    lineage = story.lineage()
    assert (lineage.head_version, lineage.next_step, lineage.next_version) == (1, 2, 4)
    assert story.ready() == 2
    story.train()
    assert story.lineage().head_version == 4
    assert story.ready() == 0


def test_a_rewind_to_the_head_changes_nothing(story: Story) -> None:
    story.sample()
    story.train()
    assert story.journal.rewind(LEASE, story.lease(), story.lineage(), 1) == 0
    assert story.journal.live_versions()[0].version == 1
    assert story.ready() == 0


def test_a_rewind_to_a_version_outside_the_lineage_is_refused(story: Story) -> None:
    with pytest.raises(JournalError, match="not in the lineage"):
        story.journal.rewind(LEASE, story.lease(), story.lineage(), 7)


def test_a_rollback_without_replay_inherits_what_was_consumed(story: Story) -> None:
    for _ in range(2):
        story.sample()
        story.train()
    old = story.lineage()
    new = story.journal.rollback(POLICY, 1, replay=False)
    assert (new.parent_id, new.from_version, new.head_version) == (old.lineage_id, 1, 1)
    assert (new.next_step, new.next_version) == (2, 3)
    assert story.journal.live_versions()[0].version == 1
    assert story.journal.versions(POLICY)[2].state == VersionState.REJECTED
    assert story.ready() == 0


def test_a_rollback_by_the_trainer_gives_way_to_one_by_a_person(story: Story) -> None:
    for _ in range(3):
        story.commit([])
    seen = story.lineage()
    person = story.journal.rollback(POLICY, 1, replay=False)
    held = (LEASE, story.lease())
    late = RollbackCause(seen.lineage_id, "1% of 32 judged answers pleased", *held)
    with pytest.raises(JournalError, match="closed meanwhile"):
        story.journal.rollback(POLICY, 2, replay=False, cause=late)
    assert story.lineage().lineage_id == person.lineage_id
    assert story.journal.live_versions()[0].version == 1
    now = RollbackCause(person.lineage_id, "1% of 32 judged answers pleased", *held)
    story.journal.rollback(POLICY, 0, replay=False, cause=now)
    assert story.journal.live_versions()[0].version == 0


@pytest.mark.parametrize("by_trainer", [True, False])
def test_what_a_fallen_version_answered_does_not_train_however_near(
    story: Story, *, by_trainer: bool
) -> None:
    for _ in range(3):
        story.commit([])
    before, fallen = story.sample(version=1), story.sample(version=3)
    why = "1% of 32 judged answers pleased"
    cause = RollbackCause(story.lineage().lineage_id, why, LEASE, story.lease())
    story.journal.rollback(POLICY, 2, replay=False, cause=cause if by_trainer else None)
    late = story.sample(version=3)
    trains = {one.turn_id for one in story.take()}
    assert before.turn_id in trains
    for turn in (fallen, late):
        assert (turn.turn_id in trains) is not by_trainer
        if by_trainer:
            assert story.sample_fate(turn) == Fate.ROLLED_BACK


def test_a_trainer_that_has_lost_its_lease_rolls_nothing_back(story: Story) -> None:
    """It may have seen versions that its successor has taken back since."""
    old = story.journal.acquire_lease(LEASE, "trainer-1", ttl_s=-1)
    assert old is not None
    fence = story.lease("trainer-2")
    for _ in range(2):
        story.commit([], fence=fence)
    lineage = story.lineage().lineage_id
    why = "1% of 32 judged answers pleased"
    cause = RollbackCause(lineage, why, LEASE, old)
    with pytest.raises(LeaseLost):
        story.journal.rollback(POLICY, 1, replay=False, cause=cause)
    assert story.lineage().lineage_id == lineage
    cause = RollbackCause(lineage, why, LEASE, fence)
    story.journal.rollback(POLICY, 1, replay=False, cause=cause)
    assert story.lineage().from_version == 1


def test_a_rollback_with_replay_frees_what_was_consumed_later(story: Story) -> None:
    turns = []
    for _ in range(3):
        turns.append(story.sample())
        story.train()
    story.journal.rollback(POLICY, 1, replay=True)
    samples = story.take()
    assert [sample.turn_id for sample in samples] == [turn.turn_id for turn in turns[1:]]
    story.commit(samples)
    with pytest.raises(JournalError, match="consumed"):
        story.commit(samples)
    assert story.ready() == 0


def test_what_an_ancestor_consumed_stays_consumed_through_several_rollbacks(story: Story) -> None:
    story.sample()
    first = story.take()
    story.commit(first)
    story.sample()
    second = story.take()
    story.commit(second)
    story.journal.rollback(POLICY, 1, replay=True)
    story.journal.rollback(POLICY, 1, replay=False)
    with pytest.raises(JournalError, match="consumed"):
        story.commit(first)
    story.commit(second)
    assert story.ready() == 0


def test_a_version_that_a_replay_had_left_does_not_learn_again_from_what_it_knows(
    story: Story,
) -> None:
    turns = []
    for _ in range(3):
        turns.append(story.sample())
        story.train()
    story.journal.rollback(POLICY, 1, replay=True)
    assert story.ready() == 2
    story.journal.rollback(POLICY, 2, replay=False)
    assert [sample.turn_id for sample in story.take()] == [turns[2].turn_id]
    story.journal.rollback(POLICY, 3, replay=True)
    assert story.ready() == 0
    story.journal.rollback(POLICY, 1, replay=True)
    assert story.ready() == 2


def test_a_replay_frees_nothing_that_the_version_it_goes_to_has_learnt(story: Story) -> None:
    """The version in between trained the same sample in another lineage."""
    for _ in range(2):
        story.sample()
        story.train()
    story.journal.rollback(POLICY, 1, replay=True)
    story.train()
    story.journal.rollback(POLICY, 2, replay=True)
    assert story.ready() == 0


def test_a_rollback_stops_the_step_of_the_old_lineage(story: Story) -> None:
    story.sample()
    fence = story.lease()
    commit = story.step(story.take())
    old = story.lineage()
    story.journal.rollback(POLICY, 0, replay=False)
    with pytest.raises(JournalError, match="closed by a rollback"):
        story.journal.commit_step(LEASE, fence, commit)
    assert story.ready() == 1
    assert story.lineage().lineage_id != old.lineage_id


@pytest.mark.parametrize("version", [7, 2])
def test_a_rollback_to_a_missing_or_orphaned_version_is_refused(story: Story, version: int) -> None:
    for _ in range(2):
        story.commit([])
    story.journal.rewind(LEASE, story.lease(), story.lineage(), 1)
    with pytest.raises(JournalError):
        story.journal.rollback(POLICY, version, replay=False)


def test_a_rollback_to_a_version_without_files_is_refused(story: Story) -> None:
    for _ in range(2):
        story.commit([], checkpoint_uri="/c")
    story.journal.forget_files(POLICY, 1)
    kept = story.journal.versions(POLICY)[1]
    assert (kept.files, kept.checkpoint_uri) == (False, None)
    with pytest.raises(JournalError, match="cannot be served"):
        story.journal.rollback(POLICY, 1, replay=False)


def test_a_checkpoint_written_after_its_step_is_recorded_under_the_lease(story: Story) -> None:
    old = story.journal.acquire_lease(LEASE, "trainer-1", ttl_s=-1)
    assert old is not None
    fence = story.lease("trainer-2")
    story.commit([], fence=fence)
    with pytest.raises(LeaseLost):
        story.journal.record_checkpoint(LEASE, old, POLICY, 1, "/c/1")
    assert story.journal.versions(POLICY)[1].checkpoint_uri is None
    story.journal.record_checkpoint(LEASE, fence, POLICY, 1, "/c/1")
    assert story.journal.versions(POLICY)[1].checkpoint_uri == "/c/1"


def test_the_files_of_the_live_version_are_not_forgotten(story: Story) -> None:
    with pytest.raises(JournalError, match="live"):
        story.journal.forget_files(POLICY, 0)


def test_versions_that_share_files_lose_them_together_or_not_at_all(story: Story) -> None:
    """A live version's own row was guarded, and not the files that it had of its parent."""
    for files in ("/policies/1", "/policies/1", "/policies/3"):
        story.commit([], uri=files, checkpoint_uri="/c")
    story.journal.rollback(POLICY, 2, replay=False)
    with pytest.raises(JournalError, match="live"):
        story.journal.forget_files(POLICY, 1)
    assert all(one.files for one in story.journal.versions(POLICY))
    story.journal.rollback(POLICY, 3, replay=False)
    story.journal.forget_files(POLICY, 1)
    kept = story.journal.versions(POLICY)
    assert [one.version for one in kept if one.files] == [0, 3]
    assert [one.version for one in kept if one.checkpoint_uri] == [3]
    with pytest.raises(JournalError, match="does not exist"):
        story.journal.forget_files(POLICY, 9)


def test_a_version_number_is_never_used_twice(story: Story) -> None:
    story.commit([])
    story.journal.rewind(LEASE, story.lease(), story.lineage(), 0)
    with pytest.raises(JournalError, match="next_version"):
        story.commit([], version=1)


def test_an_unregistered_policy_has_no_lineage(story: Story) -> None:
    with pytest.raises(JournalError, match="not registered"):
        story.journal.current_lineage("other")


def test_a_policy_follows_its_base_to_another_place(story: Story) -> None:
    story.commit([])
    story.journal.ensure_policy(POLICY, "local", "/models/moved", "base-hash")
    base, first = story.journal.versions(POLICY)
    assert (base.uri, base.base_uri) == ("/models/moved", "/models/moved")
    assert (first.uri, first.base_uri) == ("/policies/1", "/models/moved")


def test_a_policy_keeps_its_base(story: Story) -> None:
    story.journal.ensure_policy(POLICY, "local", "/models/base", "base-hash")
    with pytest.raises(JournalError, match="other weights"):
        story.journal.ensure_policy(POLICY, "local", "/models/other", "other-hash")
    with pytest.raises(JournalError, match="belongs to tenant"):
        story.journal.ensure_policy(POLICY, "other", "/models/base", "base-hash")
    (live,) = story.journal.live_versions()
    assert (live.version, live.uri) == (0, "/models/base")


# --- watching --------------------------------------------------------------------------------


def test_a_heartbeat_replaces_the_one_before(story: Story) -> None:
    for state in ("loading", "ready"):
        story.journal.report(RoleReport("judge", "judge-1", 7, state, {"kind": "llm"}))
    story.journal.flush()
    (report,) = story.journal.reports()
    assert (report.state, report.detail, report.pid) == ("ready", {"kind": "llm"}, 7)
    assert report.seen_at > 0


def test_counters_add_up(story: Story) -> None:
    for _ in range(3):
        story.journal.count("judge", "calls", "timeout", 2)
    story.journal.flush()
    assert story.journal.status(POLICY, 4)["counters"] == {"judge": {"calls": {"timeout": 6}}}


def test_evaluations_stay_with_their_version(story: Story) -> None:
    story.journal.add_evaluation(POLICY, 0, "prose", 0.75, {"n": 8})
    (result,) = story.journal.status(POLICY, 4)["evaluations"]
    assert (result["version"], result["name"], result["score"]) == (0, "prose", 0.75)


def test_a_closed_journal_refuses_writes_and_has_kept_the_queued_ones(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    journal = SqlJournal(url)
    turn = opening(request_chain=unique("r"))
    journal.open_turn(turn)
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.open_turn(opening())
    with SqlJournal(url) as again:
        assert again.find_same_request(SCOPE, turn.request_chain, None)


def test_processes_that_have_not_reported_for_a_day_are_forgotten(story: Story) -> None:
    for instance, age in (("old", 2 * 86_400.0), ("recent", 3600.0), ("new", 0.0)):
        seen = time.time() - age
        story.journal.report(RoleReport("gateway", instance, 1, "ready", seen_at=seen))
        story.journal.flush()
    assert {report.instance for report in story.journal.reports()} == {"recent", "new"}


def test_half_an_emoji_in_what_a_judge_says_costs_no_verdict(story: Story) -> None:
    turn = story.answer()
    story.reply(turn)
    (task,) = story.claim()
    said = Judgement(1, (Vote(1, "good \ud83d"),), "judge-a")
    spec = SampleSpec(1.0, ("use \ud83d fewer words",))
    assert story.journal.commit_judgement(task, said, spec, None)
    (sample,) = story.take()
    assert sample.hints == ("use \ufffd fewer words",)


@pytest.mark.parametrize("key", ["local", "other"])
def test_feedback_is_taken_from_the_key_of_the_answer_whatever_its_user(
    story: Story, key: str
) -> None:
    turn = story.answer(scope=Scope("local", "local", "u1"))
    result = story.journal.add_feedback(Scope("local", key), turn.completion_id, 0, 1, None)
    assert result.result(9).outcome == ("accepted" if key == "local" else "unknown")


def test_a_repeated_request_is_found_in_a_session_named_by_its_own_id(story: Story) -> None:
    turn = story.answer()
    for _ in range(2):  # queued or not
        (same,) = story.journal.find_same_request(SCOPE, turn.request_chain, turn.session_id)
        assert same.turn_id == turn.turn_id
        story.journal.flush()
