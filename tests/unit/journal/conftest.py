"""A journal of its own for each test. The story helpers live beside the contract suite."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))

from journal_story import Story

from rejoinder.journal.sql import SqlJournal


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'journal.db'}"


@pytest.fixture
def story(url: str) -> Iterator[Story]:
    with SqlJournal(url) as journal:
        yield Story(journal)
