"""Texts in headers."""

from __future__ import annotations


def header_text(value: bytes) -> str:
    """Return what a header says: UTF-8, or Latin-1 where it is none.

    Clients send both. A name read as Latin-1 would differ from the same name in a URL or body, and
    lose the last byte of some letters as white space: two sessions would become one.
    """
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = value.decode("latin-1")
    return text.strip(" \t")
