"""Directories that are whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rejoinder.errors import LeaseLost
from rejoinder.policy import durable
from rejoinder.policy.durable import MARKER, PARTIAL, discard, durable_directory, read_marker


def test_a_directory_appears_with_its_marker(tmp_path: Path) -> None:
    target = tmp_path / "a" / "v000001"
    with durable_directory(target, {"version": 1}) as made:
        (made / "weights").write_text("w")
        assert not target.exists()
    assert (target / "weights").read_text() == "w"
    assert read_marker(target) == {"version": 1}
    assert [path.name for path in target.parent.iterdir()] == ["v000001"]


def fail_while_writing(target: Path) -> None:
    with durable_directory(target, {}) as made:
        (made / "weights").write_text("ne")
        raise OSError("disk full")


def test_a_failure_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "v000001"
    with durable_directory(target, {"version": 1}) as made:
        (made / "weights").write_text("old")
    with pytest.raises(OSError, match="disk full"):
        fail_while_writing(target)
    assert (target / "weights").read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def write(target: Path, name: str) -> None:
    with durable_directory(target, {"name": name}) as made:
        (made / name).touch()


def test_an_incomplete_directory_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "v000001"
    write(target, "old")
    (target / MARKER).unlink()
    write(target, "new")
    assert sorted(path.name for path in target.iterdir()) == sorted(["new", MARKER])
    assert list(tmp_path.iterdir()) == [target]


def test_a_complete_directory_is_never_replaced(tmp_path: Path) -> None:
    target = tmp_path / "v000001"
    write(target, "old")
    with pytest.raises(FileExistsError, match="v000001"):
        write(target, "new")
    assert sorted(path.name for path in target.iterdir()) == sorted(["old", MARKER])
    assert list(tmp_path.iterdir()) == [target]


def test_who_may_not_write_any_more_leaves_nothing(tmp_path: Path) -> None:
    def confirm() -> None:
        raise LeaseLost("taken over")

    with pytest.raises(LeaseLost), durable_directory(tmp_path / "v000001", {}, confirm):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_kill_while_deleting_leaves_nothing_that_looks_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "v000001"
    write(target, "old")
    monkeypatch.setattr(durable.shutil, "rmtree", lambda *_, **__: None)  # never gets to it
    discard(target)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(PARTIAL)


def test_deleting_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    discard(tmp_path / "v000001")


def test_files_are_flushed_then_the_marker_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # B099
    """The order in which things reach the disk, seen at the calls that force them."""
    order: list[str] = []
    flush, rename = durable.flush, Path.rename

    def watched_flush(path: Path) -> None:
        order.append(f"flush {path.name.rpartition('-')[0] or path.name}")
        flush(path)

    def watched_rename(self: Path, target: Path) -> Path:
        order.append("rename")
        return rename(self, target)

    monkeypatch.setattr(durable, "flush", watched_flush)
    monkeypatch.setattr(Path, "rename", watched_rename)
    target = tmp_path / "parent" / "v000001"
    with durable_directory(target, {}) as made:
        (made / "weights").touch()
    assert order == [
        "flush weights",
        f"flush {MARKER}",
        f"flush {PARTIAL}v000001",
        "rename",
        "flush parent",
    ]


def test_a_broken_marker_is_none(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text('{"version": ')
    assert read_marker(tmp_path) is None
    assert read_marker(tmp_path / "missing") is None
