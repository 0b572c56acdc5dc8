"""What a client's program adds to its user's words, and what is left without it."""

from __future__ import annotations

import pytest

from rejoinder.chat.client_context import BLOCKS, LINES, Block, Line, own_words
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
        (f"Hello\n\nRuntime: agent=main | host=x\n{BEGIN}a{END}", "Hello"),
        ("[Sun 2026-11-29 12:10 UTC] Hello", "Hello"),
        ("[Sun 2026-11-29 12:10 Europe/Berlin] Hello", "Hello"),
        ("[see above] Hello", "[see above] Hello"),
        ("<system-reminder>\nBe brief.\n</system-reminder>Hello", "Hello"),
        ("Hello\n<environment_details>\nfiles\n</environment_details>", "Hello"),
    ],
)
def test_context_is_cut_out_and_nothing_else(text: str, words: str) -> None:
    assert own_words(Message("user", text)) == words


@pytest.mark.parametrize("role", ["assistant", "tool"])
def test_only_users_words_are_cut(role: str) -> None:
    assert own_words(Message(role, f"{BEGIN}notes{END}")) == f"{BEGIN}notes{END}"


@pytest.mark.parametrize("row", [*BLOCKS, *LINES], ids=lambda row: row.name)
def test_every_row_of_the_tables_takes_something_out(row: Block | Line) -> None:
    """A row that cuts nothing would be dead; a name is used once."""
    added = {
        "openclaw_runtime": "Hello\n\nRuntime: agent=a | b=c",
        "openclaw_clock": "[Mon 2026-01-05 09:00 UTC] Hello",
    }
    text = f"Hello {row.begin}x{row.end}" if isinstance(row, Block) else added[row.name]
    assert own_words(Message("user", text)) == "Hello"
    assert [one.name for one in (*BLOCKS, *LINES)].count(row.name) == 1


def test_beginnings_without_an_end_cost_no_more_than_their_length() -> None:
    """With a pattern each beginning searched for the end anew: minutes for this text."""
    text = BEGIN * 100_000
    assert own_words(Message("user", text)) == text
