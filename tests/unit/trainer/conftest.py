"""A tiny random model, turns of it, and a journal of each test's own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))

from rejoinder.config import Config
from rejoinder.journal.sql import SqlJournal
from rejoinder.trainer import heartbeat
from tiny_model import DEVICE

from .tiny import POLICY, save_tiny_model
from .train_story import TrainStory


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _frequent_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "REPORT_S", 0.05)


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture
def make_config(model_path: Path, tmp_path: Path) -> Callable[..., Config]:
    """Return a configuration for the tiny model; keywords are settings of the trainer."""

    def make(**trainer: Any) -> Config:
        settings = {
            "batch_size": 4,
            "learning_rate": 1e-3,
            "micro_batch_tokens": 64,
            "logit_chunk": 16,
            "checkpoint_every": 2,
            "poll_s": 0.02,
            "nice": 0,
        }
        return Config.model_validate(
            {
                "home": str(tmp_path / "home"),
                "model": {
                    "policy": POLICY,
                    "path": str(model_path),
                    "device": str(DEVICE),
                    "dtype": "float32",
                },
                "journal": {"url": f"sqlite:///{tmp_path / 'journal.db'}"},
                "trainer": settings | trainer,
            }
        )

    return make


@pytest.fixture(scope="session")
def empty_journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty journal's file: making the tables takes longer than copying it."""
    path = tmp_path_factory.mktemp("journal") / "empty.db"
    SqlJournal(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def story(
    make_config: Callable[..., Config], model_path: Path, empty_journal: Path, tmp_path: Path
) -> Iterator[TrainStory]:
    shutil.copy(empty_journal, tmp_path / "journal.db")
    with SqlJournal(make_config().journal_url) as journal:
        yield TrainStory(journal, model_path)
