"""Where versions are on disk, and which may be deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rejoinder.errors import ConfigError, LeaseLost
from rejoinder.journal.records import PolicyVersion
from rejoinder.policy.durable import durable_directory
from rejoinder.policy.files import PolicyFiles, expendable, has_weights
from rejoinder.types import VersionState, WeightsKind


def version(number: int, **changes: Any) -> PolicyVersion:
    fields: dict[str, Any] = {
        "policy": "default",
        "version": number,
        "uri": f"file:///nowhere/{number}" if number else "file:///base",
        "kind": WeightsKind.FULL,
        "base_uri": "file:///base",
        "parent": number - 1 if number else None,
        "lineage_id": "l",
        "step": number or None,
        "state": VersionState.RETIRED,
        "created_at": 0.0,
    }
    return PolicyVersion(**(fields | changes))


def checkpoint(files: PolicyFiles, number: int) -> None:
    with durable_directory(files.checkpoint(number), {"version": number}):
        pass


def test_checkpoints_are_in_numeric_order(tmp_path: Path) -> None:  # B100
    files = PolicyFiles(tmp_path, "default")
    for number in (2, 10, 9, 1_000_000, 9_999_999):
        checkpoint(files, number)
    assert files.checkpoints() == [2, 9, 10, 1_000_000, 9_999_999]


def test_a_directory_without_a_marker_is_no_checkpoint(tmp_path: Path) -> None:  # B099
    files = PolicyFiles(tmp_path, "default")
    checkpoint(files, 1)
    files.checkpoint(2).mkdir()
    assert files.checkpoints() == [1]


def test_leftovers_are_what_the_journal_does_not_know(tmp_path: Path) -> None:
    files = PolicyFiles(tmp_path, "default")
    for number in (1, 2, 3):
        files.version(number).mkdir(parents=True)
    files.version(1).with_name(".partial-v000004-1").mkdir()
    (files.version(1).parent / "notes.txt").write_text("of a person")
    known = [version(0), version(1), version(2, files=False)]
    removed = files.remove_leftovers(known, lambda: None)
    assert removed == [
        "versions/.partial-v000004-1",
        "versions/v000002",
        "versions/v000003",
    ]
    assert sorted(path.name for path in files.version(1).parent.iterdir()) == [
        "notes.txt",
        "v000001",
    ]


def test_who_was_taken_over_deletes_nothing(tmp_path: Path) -> None:
    """What it does not know may be what its successor has committed meanwhile."""
    files = PolicyFiles(tmp_path, "default")
    checkpoint(files, 1)

    def confirm() -> None:
        raise LeaseLost("taken over")

    with pytest.raises(LeaseLost):
        files.remove_leftovers([version(0)], confirm)
    assert files.checkpoints() == [1]


def test_nothing_is_there_before_the_first_version(tmp_path: Path) -> None:
    files = PolicyFiles(tmp_path, "default")
    assert files.checkpoints() == []
    assert files.remove_leftovers([version(0)], lambda: None) == []
    assert has_weights(version(0))
    assert has_weights(version(1, uri="file:///base"))
    assert not has_weights(version(1))


def test_the_newest_versions_stay() -> None:
    versions = [version(number) for number in range(6)]
    assert expendable(versions, [], keep=2, start=0) == [1, 2, 3]


def test_what_is_served_pinned_resumable_or_the_start_stays() -> None:
    versions = [
        version(0),
        version(1, pinned=True),
        version(2, state=VersionState.LIVE),
        version(3),
        version(4),
        version(5),
        version(6),
        version(7, files=False),
    ]
    assert expendable(versions, [4], keep=1, start=3) == [5]


def test_orphaned_versions_do_not_count_as_new_ones() -> None:
    versions = [
        version(1),
        version(2),
        version(3, state=VersionState.ORPHANED),
        version(4, state=VersionState.ORPHANED),
    ]
    assert expendable(versions, [3], keep=1, start=0) == [1, 3, 4]


def test_versions_with_the_same_files_count_as_one_and_go_together() -> None:
    unmoved = [version(0), version(1, uri="file:///base")]
    first, second = version(2), version(5)
    alike = [version(number, uri=first.uri) for number in (3, 4)]
    versions = [*unmoved, first, *alike, second]
    assert expendable(versions, [], keep=2, start=0) == []
    assert expendable(versions, [], keep=1, start=0) == [2, 3, 4]
    assert expendable(versions, [3], keep=1, start=0) == []
    alike[1] = version(4, uri=first.uri, state=VersionState.LIVE)
    assert expendable([*unmoved, first, *alike, second], [], keep=1, start=0) == []


@pytest.mark.parametrize("name", [".", ".."])
def test_a_policy_s_name_cannot_leave_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.policy"):
        PolicyFiles(tmp_path, name)
