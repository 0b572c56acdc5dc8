"""What ``rejoinder policy list`` and ``policy show`` print for people."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))

from journal_story import Story

from rejoinder.cli import terminal
from rejoinder.cli.main import app
from rejoinder.cli.version_view import FIGURES
from rejoinder.journal.sql import SqlJournal

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "algorithms.md"
NAME = re.compile("`([a-z_]+)`")
PLACE = "file:///models/" + "a-long-name/" * 10
"""Longer than a line of the terminal."""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REJOINDER_HOME", str(tmp_path))
    with SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        journal.ensure_policy("default", "default", PLACE, "base-hash")
    terminal.out.cache_clear()
    terminal.err.cache_clear()


def show(version: int = 0) -> str:
    result = CliRunner().invoke(app, ["policy", "show", str(version)])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_a_place_is_shown_whole_however_narrow_the_terminal() -> None:
    assert any(line.endswith(PLACE) for line in show().splitlines())


def test_the_time_of_a_version_is_readable() -> None:
    when = r"^made +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC, \d s ago: the start weights$"
    assert re.search(when, show(), re.MULTILINE)


def test_a_version_is_shown_in_words_with_the_names_of_its_figures(tmp_path: Path) -> None:
    """It was the row of a table: ``lineage_id``, ``checkpoint_uri``, ``files  True``."""
    with SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        story = Story.__new__(Story)
        story.journal = journal
        story.commit([], metrics={"loss": 0.123456, "mine_own": 2, "reward_mean": -0.5})
    lines = [" ".join(line.split()) for line in show(1).splitlines()]
    assert lines[0] == "version 1 of default, live"
    assert lines[1].endswith("ago, by step 1 from version 0")
    assert "optimizer not kept" in lines
    assert "weights whole model, /policies/1" in lines
    assert lines[-3:] == ["mean verdict -0.5 reward_mean", "loss 0.123 loss", "mine own 2 mine_own"]


def test_every_figure_of_the_reference_has_words() -> None:
    rows = REFERENCE.read_text("utf-8").partition("## Figures of a step")[2].splitlines()
    named = {
        name
        for row in rows
        if row.startswith("| `")
        for name in NAME.findall(row[: row.index(" | ")])
    }
    assert named == set(FIGURES)


def test_the_list_says_whose_weights_a_version_has(tmp_path: Path) -> None:
    with SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        journal.ensure_policy("default", "default", PLACE, "base-hash")
        story = Story.__new__(Story)
        story.journal = journal
        story.commit([], checkpoint_uri="/c/1")
        story.commit([], uri="/policies/1")
        story.commit([], uri="/policies/1", checkpoint_uri="/c/3")
    result = CliRunner().invoke(app, ["policy", "list"], env={"COLUMNS": "100"})
    files = {line.split()[0]: line for line in result.stdout.splitlines()[1:]}
    assert re.search(r"\d s +as 1, resumable ", files["3"])
    assert re.search(r"\d s +as 1 ", files["2"])
    assert re.search(r"\d s +resumable ", files["1"])
    assert re.search(r"\d s +weights ", files["0"])


def test_a_rollback_to_what_is_live_changes_nothing_and_says_so(tmp_path: Path) -> None:
    """It opened a lineage each time, and asked whether version 0 should take version 0's place."""
    result = CliRunner().invoke(app, ["policy", "rollback", "0"])
    assert result.exit_code == 0, result.stderr
    assert "version 0 is live already; nothing has changed" in result.output
    with SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        assert journal.database.reader().exec_driver_sql("SELECT * FROM lineages").all() == []


@pytest.mark.parametrize(
    ("said", "live", "told"),
    [("y\n", 0, "version 0 is live"), ("n\n", 1, "Aborted"), (None, 1, "nobody to ask: add --yes")],
)
def test_a_rollback_asks_first(said: str | None, live: int, told: str, tmp_path: Path) -> None:
    with SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        story = Story.__new__(Story)
        story.journal = journal
        story.commit([])
    result = CliRunner().invoke(app, ["policy", "rollback", "0"], input=said)
    assert told in result.stderr + str(result.exception)
    with SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        assert journal.live_versions()[0].version == live


def test_after_a_rollback_list_and_version_say_why_steps_have_numbers_that_others_had(
    tmp_path: Path,
) -> None:
    with SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        story = Story.__new__(Story)
        story.journal = journal
        for _ in range(2):
            story.commit([])
        unmoved = CliRunner().invoke(app, ["policy", "list"])
        journal.rollback("default", 1, replay=False)
        for _ in range(2):
            story.commit([])
    said = CliRunner().invoke(app, ["policy", "list"])
    note = "a rollback counts steps on from the version gone back to: 3 from 1\n"
    assert said.stderr == note
    assert unmoved.stderr == ""
    assert "by step 2 from version 1, after a rollback to it" in show(3)
    assert "rollback" not in show(2)
    assert "rollback" not in show(4)
