from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from journal_story import MAKER, SCOPE, Story, opening, user

from rejoinder.types import Fate, Message, Scope, TurnType


def exported(story: Story, **options: object) -> list[dict]:
    file = io.BytesIO()
    story.journal.export_records(file, **options)
    return [json.loads(line) for line in file.getvalue().splitlines()]


def test_a_turn_is_exported_with_all_that_became_of_it(story: Story) -> None:
    turn = story.answer(messages=[Message("system", "s" * 900), user("2+2?")])
    story.reply(turn, "That is wrong")
    assert story.judge(-1, hints=["Count again."])
    story.train()
    story.journal.add_feedback(SCOPE, turn.completion_id, 0, 1, "too late").result(9)
    record, step = exported(story)
    assert record["type"] == "turn"
    assert (record["turn"], record["session"]) == (turn.turn_id, turn.session_id)
    assert (record["completion"], record["choice"]) == (turn.completion_id, 0)
    assert [message["content"] for message in record["messages"]] == ["s" * 900, "2+2?"]
    assert record["answer"]["content"] == "Paris."
    assert record["versions"] == [[0, 3]]
    assert record["next_states"][0]["messages"][0]["content"] == "That is wrong"
    assert record["next_states"][0]["outcome"] == "verdict"
    assert record["next_states"][0]["no_hint"] is None
    (verdict,) = record["verdicts"]
    assert (verdict["score"], verdict["votes"][0]["reason"]) == (-1, "because")
    assert record["sample"]["hints"] == ["Count again."]
    (maker,) = record["sample"]["hinted_by"]
    assert (maker["kind"], maker["model"]) == ("llm", "some model")
    assert maker["fingerprint"] == MAKER.fingerprint
    assert record["sample"]["consumed_by"] == [{"version": 1, "untrained": None}]
    assert record["feedback"][0]["outcome"] == Fate.LATE_FEEDBACK
    assert step["untrained"] == {}
    assert (step["type"], step["step"], step["version"], step["samples"]) == ("step", 1, 1, 1)
    assert (step["mean_score"], step["orphaned"]) == (-1.0, False)


def test_turns_that_never_train_are_exported_with_their_reason(story: Story) -> None:
    story.answer(turn_type=TurnType.SIDE)
    story.journal.open_turn(opening())
    story.journal.flush()
    side, unfinished = exported(story)
    assert (side["state"], side["fate"], side["sample"]) == ("ended", "side", None)
    assert (unfinished["state"], unfinished["answer"]) == ("open", None)


def test_an_export_goes_on_where_the_last_one_ended(story: Story, tmp_path: Path) -> None:
    turns = [story.answer() for _ in range(3)]
    path = tmp_path / "records.jsonl"
    report = story.journal.export_records(path)
    assert report == {"turns": 3, "steps": 0, "last": turns[-1].turn_id}
    turns.append(story.answer())
    assert story.journal.export_records(path, since=report["last"])["turns"] == 1
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [line["turn"] for line in lines] == [turn.turn_id for turn in turns]


def test_nothing_new_keeps_the_place(story: Story) -> None:
    turn = story.answer()
    report = story.journal.export_records(io.BytesIO(), since=turn.turn_id)
    assert report == {"turns": 0, "steps": 0, "last": turn.turn_id}


def test_a_bare_file_name_works(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    story.answer()
    assert story.journal.export_records("records.jsonl")["turns"] == 1
    assert (tmp_path / "records.jsonl").read_bytes().count(b"\n") == 1


def test_an_export_can_be_kept_to_a_tenant_or_a_policy(story: Story) -> None:
    mine = story.answer()
    other = story.answer(scope=Scope("other", "local"), policy="p2")
    assert [line["turn"] for line in exported(story, tenant="local")] == [mine.turn_id]
    assert [line["turn"] for line in exported(story, policy="p2")] == [other.turn_id]


def test_an_export_of_more_than_a_page_has_every_turn_once(story: Story) -> None:
    for _ in range(249):
        story.journal.open_turn(opening())
    story.answer()
    ids = [line["turn"] for line in exported(story)]
    assert len(ids) == len(set(ids)) == 250
