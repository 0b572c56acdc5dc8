"""Fixtures of the contract suites."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rejoinder.journal.sql import SqlJournal
from rejoinder.models.tokenizer import ModelTokenizer


@pytest.fixture(scope="session")
def empty_journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty journal's file: making the tables takes longer than copying it."""
    path = tmp_path_factory.mktemp("journal") / "empty.db"
    SqlJournal(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def journal_url(empty_journal: Path, tmp_path: Path) -> str:
    """URL of a journal of the test's own."""
    return f"sqlite:///{shutil.copy(empty_journal, tmp_path / 'journal.db')}"


@pytest.fixture
def gateway(tiny_tokenizer, journal_url) -> Callable:
    """Return what starts a gateway: an async context manager that takes its settings."""
    from gateway_kit import running

    return lambda **settings: running(tiny_tokenizer, journal_url, **settings)


@pytest.fixture(scope="session")
def thinker(tiny_tokenizer) -> ModelTokenizer:
    """A tokenizer and template of the family of Qwen3."""
    from gateway_kit import thinking

    return thinking(tiny_tokenizer)


@pytest.fixture
def tools_gateway(thinker, journal_url) -> Callable:
    """Return what starts a gateway whose model thinks and calls tools."""
    from gateway_kit import running

    return lambda **settings: running(thinker, journal_url, **settings)
