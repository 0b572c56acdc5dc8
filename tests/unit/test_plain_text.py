"""What strangers wrote, on a terminal."""

from __future__ import annotations

from rejoinder.plain_text import plain, shortened


def test_text_of_strangers_is_shown_and_obeyed_by_nobody() -> None:
    assert plain("\x1b[2J\x9b2J\x07 \u202eevil\u061c\ud800") == "�[2J�2J� �evil��"
    assert plain("one\r\ntwo\r") == "one\ntwo�"
    kept = "Größe\n\t漢字 👩\u200d🚀"
    assert plain(kept) == kept


def test_a_shortened_text_is_one_line() -> None:
    assert shortened(" a\n\x1b b ", 9) == "a � b"
    assert shortened("x" * 10, 9) == "x" * 8 + "…"
