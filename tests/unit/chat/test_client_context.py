"""What a client's program adds to its user's words, and what is left without it."""

from __future__ import annotations

import pytest

from rejoinder.chat.client_context import own_words
from rejoinder.types import Message

BEGIN, END = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"before {BEGIN}notes{END} after", "before  after"),
        (f"{BEGIN}a{END}one{BEGIN}b\nc{END}", "one"),
        (f"one {BEGIN} two", f"one {BEGIN} two"),
        (f"{END} one {BEGIN}a{BEGIN}b{END}two", f"{END} one two"),
        ("Hello\n\nRuntime: agent=main | host=x", "Hello"),
    ],
)
def test_context_is_cut_out_and_nothing_else(text: str, words: str) -> None:
    assert own_words(Message("user", text)) == words


def test_beginnings_without_an_end_cost_no_more_than_their_length() -> None:
    """With a pattern each beginning searched for the end anew: minutes for this text."""
    text = BEGIN * 100_000
    assert own_words(Message("user", text)) == text
