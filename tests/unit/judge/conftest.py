"""Tokenizers for the judges' tests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tokenizers import Tokenizer, models, normalizers

from rejoinder.models.tokenizer import ModelTokenizer

WORDS = ["▁", "▁Class", ":", "▁positive", "▁negative", "<unk>"]


@pytest.fixture
def word_tokenizer(tiny_tokenizer: ModelTokenizer) -> ModelTokenizer:
    """A few whole words, and a space put before every text, as Llama 2 does."""
    tokenizer = Tokenizer(models.Unigram([(word, -1.0) for word in WORDS], unk_id=5))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    return replace(tiny_tokenizer, tokenizer=tokenizer)
