"""Tokenising by pieces gives the ids of the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from rejoinder.chat.segments import SegmentTokenizer, exact_boundaries
from rejoinder.models.tokenizer import ModelTokenizer


def with_merges() -> ModelTokenizer:
    """A tokenizer whose merges cross spaces and newlines, so that a wrong cut shows."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("a", "b"), ("ab", "a"), ("Ġ", "a"), ("Ċ", "Ċ"), ("Ġ", "Ġ"), ("<", "|"), ("|", ">")]
    vocabulary = dict.fromkeys([*alphabet, *("".join(pair) for pair in pairs)])
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    names = ("<|im_start|>", "<|im_end|>")
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    from pathlib import Path

    return ModelTokenizer(Path(), tokenizer, None, {}, (), 64)


MERGING = with_merges()
PARTS = [
    "<|im_start|>",
    "<|im_end|>",
    "a",
    "b",
    "ab",
    " ",
    "\n",
    "<|",
    "|>",
    "im_end",
    "é",
    "👍",
    "<",
]


@given(st.lists(st.sampled_from(PARTS), max_size=30).map("".join), st.booleans())
def test_ids_of_the_pieces_are_the_ids_of_the_whole(text, warm):
    segments = SegmentTokenizer(MERGING)
    if warm:
        segments.encode(segments.cut(text))
    assert segments.encode(segments.cut(text)) == MERGING.encode(text)


def test_known_text_is_no_work_and_new_text_is_counted():
    segments = SegmentTokenizer(MERGING)
    text = "<|im_start|>ab ab<|im_end|>"
    assert segments.cut(text).unknown_chars == 5
    segments.encode(segments.cut(text))
    assert segments.cut(text).unknown_chars == 0
    assert segments.cut(f"{text}<|im_start|>b").unknown_chars == 1


def test_the_cache_forgets_the_oldest_beyond_its_bounds():
    segments = SegmentTokenizer(MERGING, max_chars=10, max_pieces=2)
    for text in ("aaaa", "bbbb", "abab"):
        segments.encode(segments.cut(text))
    assert segments.cut("aaaa").unknown_chars == 4
    assert segments.cut("abab").unknown_chars == 0
    segments.encode(segments.cut("a" * 50))
    assert segments.cut("a" * 50).unknown_chars == 50


@pytest.mark.parametrize(
    ("token", "exact"),
    [
        (AddedToken("<x>", special=True, normalized=False), True),
        (AddedToken("<x>", special=True, normalized=False, lstrip=True), False),
        (AddedToken("<x>", special=True, normalized=False, rstrip=True), False),
        (AddedToken("<x>", special=True, normalized=True), False),
        (AddedToken("end|><|im", special=True, normalized=False), True),
    ],
)
def test_a_cut_is_made_only_at_tokens_that_touch_nothing_beside_them(token, exact):
    made = with_merges()
    made.tokenizer.add_special_tokens([token])
    boundaries = exact_boundaries(made)
    if "|" in token.content:  # it can hide parts of the others
        assert not boundaries
    else:
        assert (token.content in boundaries) == exact


def test_no_cut_is_made_where_the_first_piece_is_treated_apart():
    made = with_merges()
    made.tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="first")]
    )
    assert exact_boundaries(made) == {}
    segments = SegmentTokenizer(replace(made))
    text = "a<|im_end|>b"
    assert segments.encode(segments.cut(text)) == made.encode(text)
