"""Tiny models that the engine tests share."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rejoinder.engine.torch_engine.scheduler import Scheduler
from rejoinder.models.tokenizer import ModelTokenizer
from tiny_model import save_tiny_model


@pytest.fixture(scope="session")
def tiny_models(
    tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: ModelTokenizer
) -> list[Path]:
    """Three versions of one Llama-like model."""
    root = tmp_path_factory.mktemp("tiny")
    return [save_tiny_model(root / str(seed), tiny_tokenizer, seed=seed) for seed in range(3)]


@pytest.fixture
def up_after_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a request that has a deadline is up when its answer has begun, on any machine."""
    drop_ended = Scheduler.drop_ended

    def drop(scheduler: Scheduler, now: float) -> None:
        begun = any(len(one.ids) > len(one.given) for one in scheduler.running)
        drop_ended(scheduler, math.inf if begun else now)

    monkeypatch.setattr(Scheduler, "drop_ended", drop)
