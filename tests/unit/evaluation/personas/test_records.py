"""Files of runs: whole, readable, and told apart by who, how and which seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rejoinder.errors import RejoinderError
from rejoinder.evaluation.personas.records import (
    cut_path,
    read_cut_runs,
    read_run,
    read_runs,
    refuse_unwritable,
    run_path,
    write_run,
)

from .kit import measured, run

RECORD = run("+-+", [measured(0, 3, right=2), measured(1, 9, sessions=3, right=3)])


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = run_path(tmp_path / "new", ["calm"], "binary", 0)
    write_run(RECORD, path)
    assert read_run(path) == RECORD
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_runs_of_a_folder_come_in_order_and_other_files_are_left_alone(tmp_path: Path) -> None:
    for method, seed in (("opd", 0), ("binary", 10), ("binary", 2)):
        path = run_path(tmp_path, ["calm"], method, seed)
        write_run(run(method=method, seed=seed), path)
    (tmp_path / "curves.png").write_bytes(b"")
    found = [(one.method, one.seed) for one in read_runs(tmp_path)]
    assert found == [("binary", 2), ("binary", 10), ("opd", 0)]


def test_names_tell_joint_and_separate_runs_apart(tmp_path: Path) -> None:
    assert run_path(tmp_path, ["a", "b"], "x", 0) != run_path(tmp_path, ["a"], "x", 0)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"method": 3}'])
def test_a_file_that_is_no_run_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.run.json"
    path.write_bytes(content)
    with pytest.raises(RejoinderError, match=r"a\.run\.json is no readable run"):
        read_run(path)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("settings", {}, "its settings lack"),
        ("settings", {"benchmark": {"sessions": "20"}}, "its settings lack"),
        ("personas", [], "it has no persona"),
        ("personas", ["calm", "loud"], "a measurement lacks loud"),
    ],
)
def test_a_run_that_does_not_hold_together_is_named(
    tmp_path: Path, key: str, value: object, told: str
) -> None:
    path = run_path(tmp_path, ["calm"], "binary", 0)
    write_run(RECORD, path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(RejoinderError, match=f"is no readable run of .*: {told}"):
        read_run(path)


def test_regression_a_copy_of_a_run_is_no_run_of_another_seed(tmp_path: Path) -> None:
    write_run(RECORD, run_path(tmp_path, ["calm"], "binary", 0))
    write_run(RECORD, tmp_path / "a copy.run.json")
    with pytest.raises(
        RejoinderError, match=r"a copy\.run\.json .*calm\.binary\.seed-0\.run\.json"
    ):
        read_runs(tmp_path)


def test_a_run_that_another_process_finishes_meanwhile_is_no_unreadable_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run_path(tmp_path, ["calm"], "binary", 0)
    write_run(RECORD, cut_path(path))

    def finished_meanwhile(self: Path) -> bytes:
        write_run(RECORD, path)
        self.unlink()
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_bytes", finished_meanwhile)
    assert read_cut_runs(tmp_path) == []


def test_a_run_of_another_format_is_refused(tmp_path: Path) -> None:
    path = run_path(tmp_path, ["calm"], "binary", 0)
    write_run(RECORD, path)
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(RejoinderError, match="format 2"):
        read_run(path)


def test_a_run_without_a_whole_start_is_refused(tmp_path: Path) -> None:
    path = run_path(tmp_path, ["calm"], "binary", 0)
    write_run(run(measurements=[measured(0, 0, failed=3), measured(1, 5)]), path)
    with pytest.raises(RejoinderError, match="no whole measurement of its start"):
        read_run(path)


def test_the_file_of_a_run_that_goes_on_is_not_among_the_finished(tmp_path: Path) -> None:
    write_run(RECORD, cut_path(run_path(tmp_path, ["calm"], "binary", 0)))
    assert read_runs(tmp_path) == []
    assert read_cut_runs(tmp_path) == [RECORD]


def test_a_run_that_has_ended_since_it_was_cut_is_among_the_finished_alone(tmp_path: Path) -> None:
    path = run_path(tmp_path, ["calm"], "binary", 0)
    write_run(run(measurements=[measured(0, 0)]), cut_path(path))
    write_run(RECORD, path)
    assert read_runs(tmp_path) == [RECORD]
    assert read_cut_runs(tmp_path) == []


def test_a_folder_that_no_run_can_be_written_to_is_refused_before_one_is_made(
    tmp_path: Path,
) -> None:
    refuse_unwritable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "below", tmp_path / ("x" * 300)):
        with pytest.raises(RejoinderError, match=f"cannot be written to {folder}: "):
            refuse_unwritable(folder)


def test_a_run_that_cannot_be_written_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.run.json"
    path.mkdir()
    with pytest.raises(RejoinderError, match="cannot be written"):
        write_run(RECORD, path)
    assert list(tmp_path.iterdir()) == [path]


def test_another_process_may_write_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "a.run.json"
    others = path.with_suffix(".unfinished")
    others.write_text("half of")
    write_run(RECORD, path)
    assert read_run(path) == RECORD
    assert others.read_text() == "half of"
