"""``rejoinder explain turn``: why a turn was linked, on the screen and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))

from journal_story import Story, opening

from rejoinder.cli import terminal
from rejoinder.cli.main import app
from rejoinder.errors import EXIT_REFUSED
from rejoinder.journal.records import RoleReport
from rejoinder.journal.sql import SqlJournal
from rejoinder.types import Fate, Message, Sampling, ToolCall

LINK = {
    "repeat": {"rule": "not_repeated", "why": "repeats no earlier request"},
    "parent": {"rule": "several_answers", "why": "2 earlier answers fit", "turns": ["t1", "t2"]},
    "session": {"rule": "named", "why": "the session that the client names"},
    "prompt": {"rule": "spliced", "why": "as they were sampled", "turns": ["t0"], "ids": 12},
    "begun": 7,
    "named_by": "rule openclaw",
    "type_by": "default",
}


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REJOINDER_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    terminal.out.cache_clear()
    terminal.err.cache_clear()
    with SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        yield Story(journal)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["explain", "turn", *arguments])
    return result.exit_code, result.stdout + result.stderr


def lines(said: str) -> list[str]:
    return [" ".join(line.split()) for line in said.splitlines()]


def test_a_hint_is_shown_with_who_drew_it(story: Story) -> None:
    turn = story.answer()
    story.reply(turn, "Too long")
    story.judge(-1, hints=["Be brief."])
    _, said = run(turn.turn_id)
    assert "hint Be brief. (llm, hints-llm-0123, some model)" in lines(said)


def test_the_rules_that_decided_are_named_with_what_they_looked_at(story: Story) -> None:
    turn = story.answer(link=LINK, external_session="[bold]x")
    code, said = run(turn.turn_id)
    assert code == 0, said
    shown = lines(said)
    assert f"turn {turn.turn_id}" in shown
    assert "type main (default)" in shown
    assert f"session {turn.session_id}" in shown
    assert "named: the session that the client names" in shown
    assert "named '[bold]x' by rule openclaw" in shown
    assert "parent none" in shown
    assert "several_answers: 2 earlier answers fit: t1, t2" in shown
    assert "prompt spliced: as they were sampled" in shown
    assert "its first 12 ids are those of t0" in shown
    assert "begins with a call: the last 7 ids of its prompt" in shown
    assert "state waiting" in shown


def test_what_became_of_the_turn_is_shown(story: Story) -> None:
    turn = story.answer(link=LINK)
    child = story.reply(turn, "Wrong")
    story.judge(-1)
    story.train()
    shown = lines(run(turn.completion_id)[1])
    assert f"reply {child}: 1 message(s), user; verdict" in shown
    assert "verdict -1 by judge" in shown
    assert "sample trained version 1" in shown


def test_a_reply_without_a_hint_says_why(story: Story) -> None:
    turn = story.answer()
    story.reply(turn, "Wrong")
    (task,) = story.claim()
    story.journal.commit_judgement(task, None, None, Fate.NO_HINT, "nothing_said: [no] words")
    assert "no hint: nothing_said: [no] words" in lines(run(turn.turn_id)[1])


def test_a_sample_that_changed_nothing_is_not_called_trained(story: Story) -> None:
    turn = story.sample()
    story.train_of({turn.turn_id: Fate.ALL_ALIKE})
    shown = lines(run(turn.turn_id)[1])
    assert "sample used up by version 1, changed no weights: all_alike" in shown


def test_the_setting_that_keeps_a_turn_from_training_is_named(story: Story) -> None:
    sampling = Sampling(max_tokens=9, constrained=True)
    turn = story.answer(link=LINK, sampling=sampling, fate=Fate.SAMPLING_NOT_TRAINABLE)
    shown = lines(run(turn.turn_id)[1])
    assert "state ended (sampling_not_trainable)" in shown
    (line,) = (one for one in shown if one.startswith("served only, because of: "))
    assert "an answer held to a form" in line
    assert "gateway.hold_calls" in line


def test_a_turn_of_before_explanations_were_kept_shows_its_reason(story: Story) -> None:
    turn = story.answer(link={})
    assert "a new session" in lines(run(turn.turn_id)[1])


def test_json_has_one_entry_per_answer(story: Story) -> None:
    turn = story.answer(link=LINK)
    story.answer(link=LINK, session_id=turn.session_id, completion_id=turn.completion_id, choice=1)
    code, said = run(turn.completion_id, "--json")
    assert code == 0, said
    first, second = json.loads(said)
    assert (first["turn"], first["link"]) == (turn.turn_id, LINK)
    assert second["choice"] == 1


def test_question_and_answer_are_shown_by_their_beginnings(story: Story) -> None:
    question = Message("user", "Why [is]\nit so? " + "word " * 100)
    turn = story.answer(messages=[question])
    shown = lines(run(turn.turn_id)[1])
    told = " ".join(shown)
    assert "question Why [is] it so? word word" in told
    assert told.count("word") < 50
    assert "… answer Paris." in told
    (entry,) = json.loads(run(turn.turn_id, "--json")[1])
    assert entry["question"] == {"role": "user", "text": question.content}


def test_a_result_of_a_tool_and_a_call_are_shown_as_such(story: Story) -> None:
    call = Message("assistant", "", tool_calls=(ToolCall("c1", "weather", "{}"),))
    asked = [Message("user", "Hi"), Message("tool", "12 degrees", tool_call_id="c0")]
    turn = story.answer(messages=asked, finish={"message": call})
    shown = lines(run(turn.turn_id)[1])
    assert "question tool: 12 degrees" in shown
    assert "answer calls weather" in shown


def test_an_answer_that_is_not_there_is_not_shown(story: Story) -> None:
    turn = opening()
    story.journal.open_turn(turn)
    story.journal.flush()
    code, said = run(turn.turn_id)
    assert code == 0, said
    assert not any(line.startswith("answer") for line in lines(said))


def test_what_strangers_wrote_commands_no_terminal(story: Story) -> None:
    evil = "\x1b]0;renamed\x07\x9b2J\u202e"
    call = Message("assistant", evil, tool_calls=(ToolCall("c1", evil, "{}"),))
    turn = story.answer(
        messages=[Message("user", evil)], finish={"message": call}, external_session=evil
    )
    story.reply(turn, "Too long")
    story.judge(-1, hints=[f"Be {evil} brief."])
    code, said = run(turn.turn_id)
    assert code == 0
    assert "renamed" in said
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(said)
    code, said = run(turn.turn_id, "--json")
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(said)
    assert json.loads(said)[0]["answer"]["text"] == evil


@pytest.mark.parametrize(
    ("reported", "told"),
    [
        (None, "waits: 1 sample is there, and no trainer runs"),
        (16, "waits for a full step: 1 of 16 samples are there"),
        (1, "waits for a step, which takes 1: 1 sample is there"),
    ],
)
def test_a_sample_that_waits_says_for_what(story: Story, reported: int | None, told: str) -> None:
    """It was called "not trained", as one is that never will be."""
    turn = story.sample()
    if reported is not None:
        report = RoleReport("trainer", "trainer-1", 1, "ready", {"batch_size": reported})
        story.journal.report(report)
        story.journal.flush()
    assert f"sample {told}" in lines(run(turn.turn_id)[1])


def test_a_sample_that_will_not_train_waits_for_nothing(story: Story) -> None:
    turn = story.sample()
    story.take(tokens=1)
    assert "sample not trained (limit)" in lines(run(turn.turn_id)[1])


@pytest.mark.parametrize(
    ("unknown", "told"),
    [
        ("0" * 32, "it is mistyped, of another --home, or of a deleted conversation"),
        (f"msg_{'0' * 32}", "it is mistyped, of another --home"),
        ("chatcmpl-nothing", "nor can it be: an id has 32 digits of 0 to 9 and a to f"),
        ("", "nor can it be"),
        ("it's 100%_\udc80", "nor can it be"),
    ],
)
def test_an_unknown_id_is_refused_with_what_can_be_known_of_it(
    story: Story, unknown: str, told: str
) -> None:
    """It was said to be deleted, even where it was no id at all."""
    story.answer()
    code, said = run(unknown)
    assert code == EXIT_REFUSED
    assert "is in the journal" in said
    assert told in said


def test_an_id_that_is_cut_or_has_a_mistyped_end_is_told_with_the_one_that_is_meant(
    story: Story,
) -> None:
    turn = story.answer(turn_id="01a22e000000" + "a" * 20)
    story.answer(turn_id="01a22e000001" + "b" * 20)
    completion = turn.completion_id
    for given, meant in (
        (turn.turn_id[:20], turn.turn_id),
        (completion[:24], completion),
        (turn.turn_id[:-1] + "7", turn.turn_id),
        (completion + "0", completion),
        ("01a22e", " or ".join(f"01a22e00000{end}" for end in ("0" + "a" * 20, "1" + "b" * 20))),
    ):
        code, said = run(given)
        assert code == EXIT_REFUSED
        assert said.endswith(f"; did you mean {meant}?\n")


def test_a_beginning_of_many_ids_is_told_as_such(story: Story) -> None:
    for _ in range(4):
        story.answer()
    assert "more than 3 ids begin like it: give the whole id" in run("chatcmpl-")[1]
