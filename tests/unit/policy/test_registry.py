"""The registry's view of journal rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))

from journal_story import Story

from rejoinder.engine.base import VersionSource
from rejoinder.errors import JournalError
from rejoinder.journal.records import Lineage, PolicyVersion
from rejoinder.journal.sql import SqlJournal
from rejoinder.policy.files import PolicyFiles
from rejoinder.policy.registry import PolicyRegistry, earlier_sources, in_lineage, live_sources
from rejoinder.types import VersionState, WeightsKind


def version(number: int, lineage: str | None, **changes: Any) -> PolicyVersion:
    fields: dict[str, Any] = {
        "policy": "default",
        "version": number,
        "uri": f"file:///v{number}",
        "kind": WeightsKind.LORA,
        "base_uri": "file:///base",
        "parent": None,
        "lineage_id": lineage,
        "step": None,
        "state": VersionState.RETIRED,
        "created_at": 0.0,
    }
    return PolicyVersion(**(fields | changes))


class FakeJournal:
    """Answers with fixed rows."""

    def __init__(self, *rows: PolicyVersion) -> None:
        self.rows = list(rows)

    def live_versions(self) -> list[PolicyVersion]:
        return [row for row in self.rows if row.state is VersionState.LIVE]

    def versions(self, policy: str) -> list[PolicyVersion]:
        return [row for row in self.rows if row.policy == policy]


def test_engines_are_told_where_each_live_version_is() -> None:
    journal = FakeJournal(version(2, "a"), version(3, "a", state=VersionState.LIVE))
    assert live_sources(journal) == [  # type: ignore[arg-type]
        VersionSource("default", 3, "file:///v3", WeightsKind.LORA, "file:///base")
    ]


def test_what_may_serve_instead_is_what_the_version_comes_from() -> None:
    rows = [
        version(0, None, uri="file:///base"),
        version(1, "a", parent=0),
        version(2, "a", parent=1, files=False),
        version(3, "a", parent=2, state=VersionState.REJECTED),
        version(4, "b", parent=2),
        version(5, "b", parent=4, uri="file:///v4"),
        version(6, "b", parent=5, state=VersionState.ORPHANED),
        version(7, "b", parent=5),
        version(8, "b", parent=7, uri="file:///v7", state=VersionState.LIVE),
    ]
    journal = FakeJournal(*rows)
    (wanted,) = live_sources(journal)  # type: ignore[arg-type]

    def behind(serving: int | None) -> list[int]:
        return [one.version for one in earlier_sources(journal, wanted, serving)]  # type: ignore[arg-type]

    assert behind(3) == [5, 1, 0], "7 has the files of 8, 4 those of 5, and 2 none any more"
    assert behind(None) == [5, 1, 0]
    assert behind(0) == [5, 1, 0]
    assert behind(7) == [7], "it is in memory, and what is on disk does not matter"
    assert behind(2) == [5, 2]


def test_a_lineage_holds_its_versions_and_the_one_it_starts_from() -> None:
    rows = [
        version(0, None),
        version(1, "a"),
        version(2, "a"),
        version(3, "b", state=VersionState.ORPHANED),
        version(4, "b"),
    ]
    lineage = Lineage("b", "default", "a", from_version=1, head_version=4, next_step=3)
    assert in_lineage(lineage, rows) == {1, 4}


def test_a_kill_during_retention_leaves_no_version_that_promises_deleted_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2 has the files of version 1, and its row outlived them."""
    files = PolicyFiles(tmp_path, "default")
    with SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}") as journal:
        story = Story(journal)
        for owner in (1, 1, 3):
            story.commit([], uri=files.version(owner).as_uri())
        registry = PolicyRegistry(journal, files, "default")
        monkeypatch.setattr(files, "remove_version", lambda _: sys.exit("killed"))
        with pytest.raises(SystemExit):
            registry.apply_retention(story.lineage(), keep_versions=1, keep_checkpoints=1)
        assert [one.version for one in journal.versions("default") if one.files] == [0, 3]


def test_a_policy_that_is_not_registered_is_named(tmp_path: Path) -> None:
    registry = PolicyRegistry(FakeJournal(), PolicyFiles(tmp_path, "mine"), "mine")  # type: ignore[arg-type]
    with pytest.raises(JournalError, match="'mine' is not registered"):
        registry.live()
