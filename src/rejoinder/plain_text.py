"""Texts of strangers, as a terminal may show them."""

from __future__ import annotations

import unicodedata

_KEPT = "\n\t"
_TURNS_TEXT_AROUND = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Marks that let text stand in another order than it is read in, and so look like other text."""


def plain(text: str) -> str:
    """Return a stranger's text with nothing in it that commands a terminal or cannot be written.

    What models, people and tools wrote may hold escape sequences: these move the cursor, rename the
    window, or write over what stands above.
    """
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return "".join("\ufffd" if _commands(letter) else letter for letter in text)


def _commands(letter: str) -> bool:
    control = unicodedata.category(letter) in ("Cc", "Cs") and letter not in _KEPT
    return control or letter in _TURNS_TEXT_AROUND


def shortened(text: str, limit: int) -> str:
    """Return a stranger's text on one line, cut where it is longer than so many characters."""
    text = " ".join(text.split())
    return plain(text if len(text) <= limit else text[: limit - 1] + "…")
