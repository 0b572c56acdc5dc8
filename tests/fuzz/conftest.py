"""The fuzzers use the fixtures of the gateway's contract suite."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def journal_url(tmp_path: Path) -> str:
    """URL of a journal of the test's own."""
    return f"sqlite:///{tmp_path / 'journal.db'}"
