"""What the journal says of one turn: why it was linked, and what became of it."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict
from pathlib import Path

import pytest
from journal_story import MAKER, POLICY, SCOPE, Story, judgement, opening

from rejoinder.journal.records import OpenTurn, SampleSpec
from rejoinder.journal.sql import SqlJournal
from rejoinder.types import Fate, TurnType

LINK = {"parent": {"rule": "first_request", "why": "no earlier answer"}, "named_by": "URL"}


ADDED = {
    "0003": ["turns.trace", "prompts.link"],
    "0004": ["responses"],
    "0005": ["hints.fingerprint", "hints.kind", "hints.model", "hints.prompt"],
    "0006": ["prompts.options_digest"],
    "0009": ["consumption.untrained"],
    "0010": ["next_states.no_hint"],
    "0011": ["deletions"],
    "0012": ["role_reports.pid_space"],
    "0013": ["lineages.reason"],
}
"""Tables and columns that each revision added."""


def go_back(directory: Path, revision: str) -> None:
    """Make the journal what it was at an earlier revision."""
    with sqlite3.connect(directory / "journal.db") as old:
        for added in (one for later in ADDED if later > revision for one in ADDED[later]):
            table, _, column = added.partition(".")
            old.execute(
                f"ALTER TABLE {table} DROP COLUMN {column}" if column else f"DROP TABLE {table}"
            )
        old.execute("UPDATE alembic_version SET version_num = ?", [revision])


def test_a_turn_is_explained_by_its_id_and_by_its_completions(story: Story) -> None:
    turn = story.answer(link=LINK, external_session="mine", trace=b"\xab" * 16)
    (entry,) = story.journal.explain_turn(turn.turn_id)
    assert entry == story.journal.explain_turn(turn.completion_id)[0]
    assert entry["link"] == LINK
    assert entry["reason"] == "a new session"
    assert entry["external_session"] == "mine"
    assert entry["trace"] == "ab" * 16
    assert (entry["state"], entry["fate"], entry["sample"]) == ("waiting", None, None)
    assert entry["question"] == {"role": "user", "text": "What is the capital of France?"}
    assert entry["answer"] == {"text": "Paris.", "calls": []}


def test_a_sample_waits_until_it_is_used_up_or_dropped(story: Story) -> None:
    def waits(turn: OpenTurn) -> bool:
        (entry,) = story.journal.explain_turn(turn.turn_id)
        return bool(entry["sample"]["waits"])

    trained = story.sample()
    assert waits(trained)
    story.train()
    dropped = story.sample()
    assert waits(dropped)
    story.take(tokens=1)
    assert (waits(trained), waits(dropped)) == (False, False)
    story.journal.rollback(POLICY, 0, replay=True)
    assert waits(trained)


@pytest.mark.parametrize("any_id", ["", "%", "' OR 1=1 --", "\x00", "\udcff"])
def test_an_id_that_nothing_has_finds_nothing(story: Story, any_id: str) -> None:
    story.answer()
    assert story.journal.explain_turn(any_id) == []


def test_what_became_of_a_turn_is_part_of_its_explanation(story: Story) -> None:
    turn = story.answer()
    child = story.reply(turn, "Wrong")
    assert story.judge(-1)
    story.train()
    side = story.answer(session_id=turn.session_id, parent_id=turn.turn_id, turn_type=TurnType.SIDE)
    (entry,) = story.journal.explain_turn(turn.turn_id)
    (reply,) = entry["replies"]
    assert (reply["child"], reply["kind"], reply["messages"]) == (child, "user", 1)
    assert reply["outcome"] == "verdict"
    assert entry["branches"] == [side.turn_id]
    assert entry["verdicts"][0]["score"] == -1
    assert entry["sample"]["consumed_by"] == [{"version": 1, "untrained": None}]


def uses(story: Story, turn: OpenTurn) -> list[str | None]:
    """Why each step that used a turn's sample up changed no weights by it; None: it did."""
    (entry,) = story.journal.explain_turn(turn.turn_id)
    return [used["untrained"] for used in entry["sample"]["consumed_by"]]


def test_each_sample_of_a_step_says_whether_it_changed_weights(story: Story) -> None:
    taught, alike = story.sample(-1), story.sample()
    story.train_of({alike.turn_id: Fate.ALL_ALIKE})
    assert uses(story, taught) == [None]
    assert uses(story, alike) == [Fate.ALL_ALIKE]


def test_samples_of_before_know_that_they_taught_nothing_where_all_of_their_step_did_not(
    url: str, tmp_path: Path
) -> None:
    with SqlJournal(url) as journal:
        story = Story(journal)
        alike = [story.sample(), story.sample()]
        story.train_of({one.turn_id: Fate.ALL_ALIKE for one in alike})
        mixed = [story.sample(-1), story.sample()]
        story.train_of({mixed[1].turn_id: Fate.ALL_ALIKE})
        both = [story.sample(), story.sample()]
        fates = (Fate.ALL_ALIKE, Fate.NO_SIGNAL)
        story.train_of({one.turn_id: why for one, why in zip(both, fates, strict=True)})
        waiting = story.sample(version=2)
    go_back(tmp_path, "0008")
    with SqlJournal(url) as journal:
        story = Story(journal)
        assert [uses(story, one) for one in alike] == [[Fate.ALL_ALIKE]] * 2
        assert [uses(story, one) for one in mixed] == [[None]] * 2
        assert [uses(story, one) for one in both] == [["all_alike or no_signal"]] * 2
        base, first, second, third = journal.versions(POLICY)
        assert first.uri == base.uri
        assert second.uri == third.uri != base.uri
        assert [one.turn_id for one in story.take(staleness=0)] == [waiting.turn_id]


def test_versions_of_before_keep_their_files_where_those_of_their_parents_are_gone(
    url: str, tmp_path: Path
) -> None:
    with SqlJournal(url) as journal:
        story = Story(journal)
        story.commit([])
        story.train_of({story.sample().turn_id: Fate.ALL_ALIKE})
        journal.forget_files(POLICY, 1)
        own = journal.versions(POLICY)[2].uri
    go_back(tmp_path, "0008")
    with SqlJournal(url) as journal:
        assert journal.versions(POLICY)[2].uri == own


def test_a_request_that_was_asked_again_names_what_replaced_it(story: Story) -> None:
    turn, again = story.answer(), opening()
    story.journal.supersede(turn.turn_id, again.turn_id).result(9)
    (entry,) = story.journal.explain_turn(turn.turn_id)
    assert entry["superseded_by"] == again.turn_id
    assert entry["fate"] == Fate.SUPERSEDED


def test_a_hint_is_explained_with_who_drew_it(story: Story) -> None:
    turn = story.answer()
    story.reply(turn, "Wrong, and too long")
    assert story.judge(-1, hints=["Be brief."])
    (entry,) = story.journal.explain_turn(turn.turn_id)
    assert entry["hints"] == [{"text": "Be brief.", "hinted_by": asdict(MAKER)}]


def test_a_reply_says_why_it_gave_no_hint(story: Story) -> None:
    turn = story.answer()
    story.reply(turn, "Wrong")
    (task,) = story.claim()
    why = "leak: only the next state knows: rome" + "e" * 1000
    story.journal.commit_judgement(task, judgement(-1), SampleSpec(-1.0), None, why)
    (reply,) = story.journal.explain_turn(turn.turn_id)[0]["replies"]
    assert reply["no_hint"] == why[:500]


def test_hints_of_before_their_makers_were_kept_still_teach(url: str, tmp_path: Path) -> None:
    with SqlJournal(url) as journal:
        turn = Story(journal).sample(-1, hints=["Be brief."])
    go_back(tmp_path, "0003")
    with SqlJournal(url) as journal:
        (sample,) = Story(journal).take()
        assert sample.hints == ("Be brief.",)
        (entry,) = journal.explain_turn(turn.turn_id)
        assert entry["hints"] == [{"text": "Be brief.", "hinted_by": dict.fromkeys(asdict(MAKER))}]


def test_an_unknown_id_explains_nothing(story: Story) -> None:
    story.answer()
    assert story.journal.explain_turn("chatcmpl-unknown") == []


def test_turns_of_before_the_explanation_was_kept_stay_and_link_on(
    url: str, tmp_path: Path
) -> None:
    with SqlJournal(url) as journal:
        turn = Story(journal).answer(finish={"answer_chain": b"known"})
    go_back(tmp_path, "0002")
    with SqlJournal(url) as journal:
        (match,) = journal.find_chains(SCOPE, [b"known"])
        assert match.trace is None
        (entry,) = journal.explain_turn(turn.turn_id)
        assert (entry["link"], entry["reason"]) == (None, "a new session")
        later = Story(journal).answer(parent_id=turn.turn_id, session_id=turn.session_id, link=LINK)
        assert journal.explain_turn(later.turn_id)[0]["link"] == LINK
