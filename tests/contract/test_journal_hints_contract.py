"""What every journal must do where replies give hints: a person's score outranks verdicts alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from journal_story import IMPLEMENTATIONS, LEASE, POLICY, Learning, finishing, opening

from rejoinder.algorithms import build_algorithm
from rejoinder.config import TrainerConfig
from rejoinder.errors import JournalError
from rejoinder.types import Fate, Message, TurnState, new_id

HINT = "Answer in one sentence."


@pytest.fixture(params=IMPLEMENTATIONS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:///{tmp_path / 'journal.db'}"


@contextmanager
def learning(url: str, algorithm: str) -> Iterator[Learning]:
    story = Learning(url, algorithm)
    with story.journal:
        yield story


@pytest.fixture
def combine(url: str) -> Iterator[Learning]:
    with learning(url, "combine") as story:
        yield story


@pytest.fixture
def opd(url: str) -> Iterator[Learning]:
    with learning(url, "opd") as story:
        yield story


@pytest.fixture(params=["combine", "opd"])
def story(url: str, request: pytest.FixtureRequest) -> Iterator[Learning]:
    """A story of either algorithm that learns from hints."""
    with learning(url, request.param) as story:
        yield story


# --- the score comes after the reply ---------------------------------------------------------


@pytest.mark.parametrize("score", [-1, 1])
def test_regression_a_score_that_contradicts_the_verdict_keeps_the_hints(
    combine: Learning, score: int
) -> None:
    turn = combine.answer()
    combine.reply(turn)
    combine.read(HINT, verdict=-score)
    assert combine.score(turn, score) == "accepted"
    assert combine.taught() == [(float(score), (HINT,))]
    assert combine.fate_of(turn) == (TurnState.SAMPLED, None)


@pytest.mark.parametrize("score", [-1, 0, 1])
def test_a_hinted_sample_stays_whatever_a_person_scores_where_hints_alone_teach(
    opd: Learning, score: int
) -> None:
    turn = opd.answer()
    opd.reply(turn)
    opd.read(HINT)
    assert opd.score(turn, score) == "accepted"
    assert opd.taught() == [(None, (HINT,))]


def test_a_neutral_score_takes_the_reward_and_leaves_the_hint(combine: Learning) -> None:
    turn = combine.answer()
    combine.reply(turn)
    combine.read(HINT, verdict=1)
    assert combine.score(turn, 0) == "accepted"
    assert combine.taught() == [(None, (HINT,))]
    assert combine.rows("SELECT source FROM samples") == [("judge",)]
    assert combine.score(turn, -1) == "accepted"
    assert combine.taught() == [(-1.0, (HINT,))]
    assert combine.rows("SELECT source FROM samples") == [("feedback",)]


def test_a_score_while_the_reply_is_read_refuses_that_reading_and_asks_anew(
    story: Learning,
) -> None:
    turn = story.answer()
    story.reply(turn)
    for _ in range(2):  # the attempts of readings that a score made void do not count
        (outdated,) = story.claim()
        assert story.score(turn, -1) == "accepted"
        assert not story.settle(outdated, HINT, verdict=1)
    task = story.read(HINT)
    assert (task.feedback, task.attempt) == (-1, 1)
    assert [hints for _, hints in story.taught()] == [(HINT,)]
    assert story.count("samples") == 1
    assert story.rows("SELECT source, score FROM verdicts") == [("feedback", -1)]


def test_a_turn_whose_reply_is_still_to_be_read_stays_in_judging(opd: Learning) -> None:
    turn = opd.answer()
    opd.reply(turn)
    assert opd.score(turn, 1) == "accepted"
    assert opd.fate_of(turn) == (TurnState.JUDGING, None)
    assert opd.ready() == 0
    opd.read()
    assert opd.fate_of(turn) == (TurnState.JUDGED, Fate.NO_HINT)


def test_a_score_after_a_reply_without_a_hint_is_the_turn_s_verdict(opd: Learning) -> None:
    turn = opd.answer()
    opd.reply(turn)
    opd.read()
    assert opd.score(turn, -1) == "accepted"
    assert opd.fate_of(turn) == (TurnState.JUDGED, Fate.NO_HINT)
    assert opd.ready() == 0


# --- the score comes before the reply --------------------------------------------------------


def test_regression_a_score_before_the_reply_leaves_room_for_its_hint(combine: Learning) -> None:
    turn = combine.answer()
    assert combine.score(turn, -1) == "accepted"
    assert combine.taught() == [(-1.0, ())]
    combine.reply(turn)
    assert combine.fate_of(turn) == (TurnState.SAMPLED, None)
    assert combine.read(HINT).feedback == -1
    assert combine.taught() == [(-1.0, (HINT,))]
    assert combine.fate_of(turn) == (TurnState.SAMPLED, None)
    assert combine.rows("SELECT source, score FROM verdicts") == [("feedback", -1)]
    assert combine.rows("SELECT outcome FROM next_states") == [("hint",)]
    combine.reply(turn, "And without lists.")
    assert combine.claim() == []


def test_regression_where_hints_alone_teach_a_score_makes_no_sample_that_teaches_nothing(
    opd: Learning,
) -> None:
    turn = opd.answer()
    assert opd.score(turn, -1) == "accepted"
    assert opd.fate_of(turn) == (TurnState.JUDGED, Fate.NO_HINT)
    assert opd.count("samples") == 0
    opd.reply(turn)
    assert opd.fate_of(turn) == (TurnState.JUDGING, None)
    opd.read(HINT)
    assert opd.taught() == [(None, (HINT,))]
    assert opd.fate_of(turn) == (TurnState.SAMPLED, None)


def test_a_reply_without_a_hint_leaves_the_scored_sample_and_the_next_reply_is_read(
    combine: Learning,
) -> None:
    turn = combine.answer()
    combine.score(turn, 1)
    combine.reply(turn, "Thanks!")
    combine.read()
    assert combine.taught() == [(1.0, ())]
    assert combine.rows("SELECT outcome FROM next_states") == [("no_hint",)]
    combine.reply(turn, "Shorter, please.")
    combine.read(HINT)
    assert combine.taught() == [(1.0, (HINT,))]


def test_a_hint_revives_a_sample_that_a_neutral_score_had_left_without_a_signal(
    combine: Learning,
) -> None:
    turn = combine.answer()
    combine.score(turn, 0)
    assert combine.fate_of(turn) == (TurnState.JUDGED, Fate.NEUTRAL)
    combine.reply(turn)
    combine.read(HINT)
    assert combine.taught() == [(None, (HINT,))]


def test_score_and_reply_before_the_answer_is_whole_both_count(story: Learning) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    assert story.score(turn, -1) == "accepted"
    story.reply(turn)
    assert story.claim() == []
    story.journal.finish_turn(finishing(turn)).result(9)
    scores_teach = story.rule.needs_verdicts
    state = TurnState.SAMPLED if scores_teach else TurnState.JUDGING
    assert story.fate_of(turn) == (state, None)
    assert story.read(HINT).feedback == -1
    assert story.fate_of(turn) == (TurnState.SAMPLED, None)
    assert [hints for _, hints in story.taught()] == [(HINT,)]


def test_a_score_counts_under_another_algorithm_too_and_later_replies_are_still_read(
    url: str,
) -> None:
    with learning(url, "opd") as before:
        turn = before.answer()
        before.reply(turn)
        before.score(turn, -1)
    with learning(url, "combine") as after:
        after.read()
        assert after.taught() == [(-1.0, ())]
        after.reply(turn, "Shorter, please.")
        after.read(HINT)
        assert after.taught() == [(-1.0, (HINT,))]


def test_a_reply_without_a_hint_revives_no_sample_that_was_dropped(combine: Learning) -> None:
    turn = combine.answer()
    combine.score(turn, 1)
    combine.reply(turn)
    assert combine.take(tokens=1) == []
    combine.read()
    assert combine.sample_fate(turn) == Fate.LIMIT


def test_what_a_score_left_to_be_read_outlives_a_restart(url: str) -> None:
    with learning(url, "combine") as before:
        turn = before.answer()
        before.reply(turn)
        before.score(turn, -1)
    with learning(url, "combine") as after:
        assert after.read(HINT).feedback == -1
        assert after.taught() == [(-1.0, (HINT,))]


def test_a_superseded_turn_is_not_read_although_a_person_scored_it(story: Learning) -> None:
    turn = story.answer()
    story.reply(turn)
    story.score(turn, 1)
    story.journal.supersede(turn.turn_id, new_id()).result(9)
    story.reply(turn, "Another.")
    assert story.claim() == []
    assert story.ready() == 0


# --- the words beside a score ----------------------------------------------------------------

WISH = "Shorter, please."


def test_the_words_beside_a_score_are_read_for_a_hint_and_for_nothing_else(story: Learning) -> None:
    turn = story.answer()
    assert story.score(turn, -1, WISH) == "accepted"
    task = story.read(HINT)
    assert (task.feedback, task.next_state) == (-1, (Message("user", WISH),))
    assert [hints for _, hints in story.taught()] == [(HINT,)]
    assert story.rows("SELECT source, score FROM verdicts") == [("feedback", -1)]
    assert story.rows("SELECT kind, outcome FROM next_states") == [("feedback", "hint")]


def test_until_they_are_read_a_turn_that_only_hints_teach_waits(opd: Learning) -> None:
    turn = opd.answer()
    opd.score(turn, -1, WISH)
    assert opd.fate_of(turn) == (TurnState.JUDGING, None)
    opd.read()
    assert opd.fate_of(turn) == (TurnState.JUDGED, Fate.NO_HINT)
    assert opd.rows("SELECT outcome FROM next_states") == [("no_hint",)]


def test_words_without_a_hint_leave_the_score_and_the_next_reply_is_read(
    combine: Learning,
) -> None:
    turn = combine.answer()
    combine.score(turn, 1, "Lovely.")
    combine.read()
    assert combine.taught() == [(1.0, ())]
    combine.reply(turn, WISH)
    combine.read(HINT)
    assert combine.taught() == [(1.0, (HINT,))]


def test_words_beside_a_score_are_read_although_a_verdict_had_decided(combine: Learning) -> None:
    turn = combine.answer()
    combine.reply(turn, "Hm.")
    combine.read(verdict=1)
    combine.score(turn, -1, WISH)
    combine.read(HINT)
    assert combine.taught() == [(-1.0, (HINT,))]
    combine.reply(turn, "And without lists.")
    assert combine.claim() == []


def test_where_a_hint_is_there_already_the_words_are_not_read_and_say_so(story: Learning) -> None:
    turn = story.answer()
    story.reply(turn)
    story.read(HINT, verdict=-1)
    story.score(turn, -1, WISH)
    assert story.claim() == []
    assert [hints for _, hints in story.taught()] == [(HINT,)]
    outcomes = story.rows("SELECT kind, outcome FROM next_states ORDER BY created_at")
    assert outcomes[1] == ("feedback", "feedback")


def test_words_that_come_before_the_answer_is_whole_are_read_afterwards(story: Learning) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    story.score(turn, -1, WISH)
    assert story.claim() == []
    story.journal.finish_turn(finishing(turn)).result(9)
    assert story.read(HINT).next_state == (Message("user", WISH),)
    assert [hints for _, hints in story.taught()] == [(HINT,)]


@pytest.mark.parametrize("text", ["", " \n", None])
def test_a_score_without_words_queues_nothing(story: Learning, text: str | None) -> None:
    story.score(story.answer(), -1, text)
    assert story.claim() == []


def test_long_words_and_halves_of_surrogate_pairs_are_kept(story: Learning) -> None:
    turn = story.answer()
    story.score(turn, -1, "word " * 1900 + "\ud800")
    (message,) = story.read(HINT).next_state
    assert message.content == "word " * 1900 + "\ufffd"


def test_words_that_come_after_the_answer_has_trained_are_kept_and_not_read(
    combine: Learning,
) -> None:
    turn = combine.answer()
    combine.score(turn, 1)
    combine.train()
    assert combine.score(turn, -1, WISH) == "late_feedback"
    assert combine.claim() == []
    assert combine.count("feedback") == 2


def test_where_verdicts_alone_teach_the_words_are_not_read(url: str) -> None:
    with learning(url, "binary") as story:
        story.score(story.answer(), -1, WISH)
        assert story.claim() == []
        assert story.count("next_states") == 0


def test_the_words_of_a_superseded_turn_are_not_read(story: Learning) -> None:
    turn = story.answer()
    story.journal.supersede(turn.turn_id, new_id()).result(9)
    story.score(turn, -1, WISH)
    assert story.claim() == []
    assert story.ready() == 0


# --- exactly once ----------------------------------------------------------------------------


def test_a_hint_for_a_sample_that_has_trained_is_dropped_and_counted(combine: Learning) -> None:
    turn = combine.answer()
    combine.score(turn, -1)
    combine.reply(turn)
    (task,) = combine.claim()
    combine.train()
    assert combine.settle(task, HINT, "Be brief.")
    assert combine.counters("dropped_hints") == {"late": 2}
    assert combine.count("hints") == combine.ready() == 0
    assert combine.count("samples") == combine.count("consumption") == 1


def test_a_reply_to_an_answer_that_has_trained_on_its_score_is_not_read(combine: Learning) -> None:
    turn = combine.answer()
    combine.score(turn, -1)
    combine.train()
    combine.reply(turn)
    assert combine.claim() == []
    assert combine.rows("SELECT outcome FROM next_states") == [("feedback",)]


def test_a_hint_that_comes_while_a_step_is_computed_stops_the_step(combine: Learning) -> None:
    turn = combine.answer()
    combine.score(turn, -1)
    samples = combine.take()
    combine.reply(turn)
    combine.read(HINT)
    with pytest.raises(JournalError, match="other hints"):
        combine.commit(samples)
    assert combine.count("steps") == combine.count("consumption") == 0
    combine.train()
    assert combine.count("consumption") == 1


def test_the_first_hint_decides_and_a_later_one_is_dropped_and_counted(story: Learning) -> None:
    turn = story.answer()
    story.reply(turn, "One sentence, please.")
    story.reply(turn, "Without lists.")
    first, second = story.claim(2)
    assert story.settle(first, HINT)
    assert story.settle(second, "Answer without lists.")
    assert [hints for _, hints in story.taught()] == [(HINT,)]
    assert story.counters("dropped_hints") == {"decided": 1}


# --- no verdict is asked for -----------------------------------------------------------------


def test_where_no_judge_was_asked_there_is_no_verdict_and_none_is_shown(opd: Learning) -> None:
    hinted, plain = opd.answer(), opd.answer()
    for turn, hints in ((hinted, [HINT]), (plain, [])):
        opd.reply(turn)
        opd.read(*hints)
    assert opd.fate_of(hinted) == (TurnState.SAMPLED, None)
    assert opd.fate_of(plain) == (TurnState.NO_VERDICT, Fate.NO_HINT)
    assert opd.count("verdicts") == 0
    assert opd.rows("SELECT outcome FROM next_states") == [("hint",), ("no_hint",)]
    status = opd.journal.status("default", 4)
    assert set(status["verdicts"]["scores"].values()) == {0}
    assert status["judge"]["coverage"] is None


def test_where_no_judge_was_asked_a_later_reply_may_still_bring_a_hint(opd: Learning) -> None:
    turn = opd.answer()
    opd.reply(turn, "Hm.")
    opd.read()
    opd.reply(turn, "Shorter, please.")
    assert opd.fate_of(turn) == (TurnState.JUDGING, None)
    opd.read(HINT)
    assert opd.taught() == [(None, (HINT,))]


# --- another algorithm -----------------------------------------------------------------------


def fit(story: Learning, algorithm: str) -> int:
    """A trainer with this algorithm starts."""
    rule = build_algorithm(TrainerConfig(algorithm=algorithm))
    return story.journal.fit_samples(LEASE, story.lease(), POLICY, rule)


@pytest.mark.parametrize(
    ("algorithm", "verdict", "score"), [("combine", 1, None), ("opd", None, -1)]
)
def test_a_sample_is_put_aside_by_what_it_holds_and_not_by_verdicts_that_it_left_out(
    url: str, algorithm: str, verdict: int | None, score: int | None
) -> None:
    """Its turn had a clear score, the sample no reward: it filled a batch and taught nothing."""
    with learning(url, algorithm) as story:
        turn = story.answer()
        if score is not None:
            story.score(turn, score)
        story.reply(turn)
        story.read(HINT, verdict=verdict)
        assert story.taught() == [(None, (HINT,))]
        assert fit(story, "binary") == 1
        assert (story.ready(), story.sample_fate(turn)) == (0, Fate.OTHER_ALGORITHM)
        assert fit(story, algorithm) == 0
        assert story.taught() == [(None, (HINT,))]
