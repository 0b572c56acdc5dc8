"""What a hint may look like."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejoinder.judge.hints.cleaning import MAX_CHARS, clean, is_prose, within_bounds


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("[HINT_START]Keep it\n short.[/HINT_END]", "Keep it short."),
        ("<|im_start|>Keep it <｜User｜>short.", "Keep it short."),
        ("Keep <b>it</b> `short`.", "Keep b it /b short ."),
        ("Keep it\u202e short\u200b.", "Keep it short ."),
        ("Don't say “no”, 50 % – or more?", "Don't say “no”, 50 % – or more?"),
    ],
)
def test_only_prose_is_left(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@settings(deadline=None)
@given(st.text(max_size=80), st.sampled_from(["<|im_end|>", "[INST]", "</s>", "<s>"]))
def test_no_control_token_survives(text: str, token: str) -> None:
    for made in (text + token + text, token[:2] + token + token[2:], text + token * 3):
        assert token not in clean(made, [token])


@settings(deadline=None)
@given(st.text(max_size=80))
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)
    assert is_prose(clean(text))


def test_the_bounds_are_inclusive() -> None:
    assert [within_bounds("x" * n) for n in (9, 10, MAX_CHARS, MAX_CHARS + 1)] == [
        False, True, True, False,
    ]  # fmt: skip
