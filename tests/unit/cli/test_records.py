"""Export and retention as commands: whose the file is, what is never overwritten."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from journal_story import Story, user
from typer.testing import CliRunner

from rejoinder.cli import terminal
from rejoinder.cli.main import app
from rejoinder.errors import EXIT_REFUSED
from rejoinder.journal.sql import SqlJournal
from rejoinder.types import new_id


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REJOINDER_HOME", str(tmp_path))
    with SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}"):
        pass
    terminal.out.cache_clear()
    terminal.err.cache_clear()


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["records", *arguments])
    return result.exit_code, " ".join((result.stdout + result.stderr).split())


def test_an_export_is_its_owners_only() -> None:
    before = os.umask(0)
    try:
        code, said = run("export", "deep/records.jsonl")
    finally:
        os.umask(before)
    assert code == 0, said
    assert Path("deep/records.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_there_is_replaced_only_by_force() -> None:
    Path("mine.txt").write_text("mine")
    code, said = run("export", "mine.txt")
    assert code == EXIT_REFUSED
    assert "replace it by --force" in said
    assert Path("mine.txt").read_text() == "mine"
    assert run("export", "mine.txt", "--force")[0] == 0
    assert Path("mine.txt").read_text() == ""


def test_an_export_that_goes_on_keeps_what_the_file_holds() -> None:
    Path("records.jsonl").write_text("{}\n")
    code, said = run("export", "records.jsonl", "--since", new_id())
    assert code == 0, said
    assert Path("records.jsonl").read_text() == "{}\n"


@pytest.mark.parametrize("since", ["nonsense", "", "0123"])
def test_an_id_that_no_export_printed_is_refused(since: str) -> None:
    code, said = run("export", "records.jsonl", "--since", since)
    assert code == EXIT_REFUSED
    assert f"--since takes the id that an export printed at its end; {since!r} is none" in said
    assert not Path("records.jsonl").exists()


def test_a_place_that_cannot_be_written_is_told() -> None:
    Path("directory").mkdir()
    code, said = run("export", "directory")
    assert code == EXIT_REFUSED
    assert "cannot write directory" in said


def test_retention_says_what_stays_and_why() -> None:
    code, said = run("retain", "--keep-days", "1")
    assert code == 0, said
    assert "0 sessions stay: 0 open (they end with session_done or after gateway.session" in said


def test_deleting_asks_which_and_whether() -> None:
    code, said = run("delete")
    assert code == EXIT_REFUSED
    assert "name sessions, or all of some by --tenant, --key or --user" in said
    code, said = run("delete", "nonsense", "--yes")
    assert code == EXIT_REFUSED
    assert "there is no session 'nonsense'; nothing was deleted" in said
    code, said = run("delete", "--tenant", "nobody", "--yes")
    assert code == EXIT_REFUSED
    assert "there is no such session; nothing was deleted" in said


def test_the_list_shows_ids_whole_and_hostile_words_as_they_are(tmp_path: Path) -> None:
    assert "there is no such conversation" in run("list")[1]
    hostile = "\x1b]0;mine\x07[bold]Is it?[/bold] " + "long " * 40
    with SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        turn = Story(journal).answer(messages=[user(hostile)], external_session="[red]chat\x1b[2J")
    code, said = run("list")
    assert code == 0, said
    assert turn.session_id in said
    assert "\x1b" not in said
    assert "[bold]" in said
    code, said = run("list", "--json")
    (found,) = json.loads(said)
    assert found["begins"]["text"].split() == hostile.split()
    assert run("list", "--limit", "0")[0] == EXIT_REFUSED
