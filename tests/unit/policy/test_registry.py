"""The registry's view of journal rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rejoinder.engine.base import VersionSource
from rejoinder.errors import JournalError
from rejoinder.journal.base import Lineage, PolicyVersion
from rejoinder.policy.files import PolicyFiles
from rejoinder.policy.registry import PolicyRegistry, in_lineage, live_sources
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


def test_a_policy_that_is_not_registered_is_named(tmp_path: Path) -> None:
    registry = PolicyRegistry(FakeJournal(), PolicyFiles(tmp_path, "mine"), "mine")  # type: ignore[arg-type]
    with pytest.raises(JournalError, match="'mine' is not registered"):
        registry.live()
