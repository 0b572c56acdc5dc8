"""Tiny models that the engine tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from rejoinder.models.tokenizer import ModelTokenizer
from tiny_model import save_tiny_model


@pytest.fixture(scope="session")
def tiny_models(
    tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: ModelTokenizer
) -> list[Path]:
    """Three versions of one Llama-like model."""
    root = tmp_path_factory.mktemp("tiny")
    return [save_tiny_model(root / str(seed), tiny_tokenizer, seed=seed) for seed in range(3)]
