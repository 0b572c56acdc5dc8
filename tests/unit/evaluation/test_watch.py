"""What a run reads from the journal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))

from journal_story import Story

from rejoinder.config import Config
from rejoinder.errors import JournalError
from rejoinder.evaluation.watch import JournalView, Progress
from rejoinder.journal.sql import SqlJournal
from rejoinder.types import TurnType


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(home=str(tmp_path))


@pytest.fixture
def story(config: Config) -> Iterator[Story]:
    with SqlJournal(config.journal_url) as journal:
        yield Story(journal)


@pytest.fixture
def view(config: Config, story: Story) -> Iterator[JournalView]:
    with JournalView(config) as opened:
        yield opened


def test_progress_counts_updates_trained_and_ready_samples(story: Story, view: JournalView) -> None:
    assert view.progress() == Progress(0, 0, 0)
    for _ in range(3):
        story.sample()
    story.train(limit=2)
    story.reply(story.answer())
    assert view.progress() == Progress(version=1, trained=2, ready=1, judging=1)


def test_verdicts_of_judged_turns_are_found_by_completion(story: Story, view: JournalView) -> None:
    good = story.sample(1, version=0)
    bad = story.sample(-1, version=2)
    unjudged = story.answer()
    failed = story.answer()
    story.reply(failed)
    story.judge(None)
    assert view.judged() == {
        good.completion_id: 1,
        bad.completion_id: -1,
        failed.completion_id: None,
    }
    assert unjudged.completion_id not in view.judged()


def test_side_turns_give_their_exact_ids(story: Story, view: JournalView) -> None:
    turn = story.answer(turn_type=TurnType.SIDE)
    ids = view.sampled_ids(turn.completion_id)
    assert (ids.prompt, ids.answer) == ([1, 2, 3, 4], [7, 8, 9])
    assert len(ids.logprobs) == 3


def test_an_unknown_completion_is_an_error(view: JournalView) -> None:
    with pytest.raises(JournalError, match="chatcmpl-x"):
        view.sampled_ids("chatcmpl-x")
