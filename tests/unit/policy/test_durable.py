"""Directories that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rejoinder.policy import durable
from rejoinder.policy.durable import MARKER, durable_directory, read_marker


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


def test_what_stands_there_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "v000001"
    for name in ("old", "new"):
        with durable_directory(target, {"name": name}) as made:
            (made / name).touch()
    assert sorted(path.name for path in target.iterdir()) == sorted(["new", MARKER])


def test_files_are_flushed_then_the_marker_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # B099
    """The order in which things reach the disk, seen at the calls that force them."""
    order: list[str] = []
    flush, rename = durable.flush, Path.rename

    def watched_flush(path: Path) -> None:
        order.append(f"flush {path.name}")
        flush(path)

    def watched_rename(self: Path, target: Path) -> Path:
        order.append("rename")
        return rename(self, target)

    monkeypatch.setattr(durable, "flush", watched_flush)
    monkeypatch.setattr(Path, "rename", watched_rename)
    target = tmp_path / "parent" / "v000001"
    with durable_directory(target, {}) as made:
        (made / "weights").touch()
    partial = f".partial-v000001-{os.getpid()}"
    assert order == [
        "flush weights", f"flush {MARKER}", f"flush {partial}", "rename", "flush parent",
    ]  # fmt: skip


def test_a_broken_marker_is_none(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text('{"version": ')
    assert read_marker(tmp_path) is None
    assert read_marker(tmp_path / "missing") is None
