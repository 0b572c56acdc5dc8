"""What ``rejoinder policy show`` prints for people."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rejoinder.cli import terminal
from rejoinder.cli.main import app
from rejoinder.journal.sql import SqlJournal

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


def show() -> str:
    result = CliRunner().invoke(app, ["policy", "show", "0"])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_a_place_is_shown_whole_however_narrow_the_terminal() -> None:
    assert any(line.endswith(PLACE) for line in show().splitlines())


def test_the_time_of_a_version_is_readable() -> None:
    assert re.search(r"^created_at +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$", show(), re.MULTILINE)
