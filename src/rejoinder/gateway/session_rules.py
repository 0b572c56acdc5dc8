"""Finds a session's id where clients without a header for it put one: literal, linear, in order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rejoinder.config import SessionRule
from rejoinder.gateway.headers import header_text
from rejoinder.gateway.request import TurnRequest

MAX_SESSION_CHARS = 256
_ID = re.compile(r"[\w.:@/+=~-]+", re.ASCII)


def find_session(
    rules: Sequence[SessionRule], headers: Mapping[bytes, bytes], request: TurnRequest
) -> tuple[str, str] | None:
    """Return the id that the first fitting rule finds, and the rule's name."""
    for rule in rules:
        text = _place(rule.look_in, headers, request)
        found = None if text is None else _id_after(rule.after, text)
        if found is not None:
            return found, rule.name
    return None


def _place(look_in: str, headers: Mapping[bytes, bytes], request: TurnRequest) -> str | None:
    kind, _, name = look_in.partition(".")
    match kind:
        case "header":
            value: object = header_text(headers.get(name.lower().encode(), b""))
        case "metadata":
            value = request.metadata.get(name)
        case "prompt_cache_key":
            value = request.prompt_cache_key
        case _:
            role = "system" if kind == "system" else "user"
            value = next((one.content for one in request.messages if one.role == role), None)
    return value if isinstance(value, str) else None


def _id_after(marks: Sequence[str], text: str) -> str | None:
    at = 0
    for mark in marks:
        found = text.find(mark, at)
        if found < 0:
            return None
        at = found + len(mark)
    if not marks:
        id_ = text.strip()
    else:
        match = _ID.match(text, at)
        id_ = "" if match is None else match.group()
    # A longer one is no id; cut, it could pass for another.
    return id_ if 0 < len(id_) <= MAX_SESSION_CHARS else None
