"""What a hint may look like: one clean line within bounds (rule 6)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rejoinder.judge.untrusted import neutralise, one_line

MIN_CHARS, MAX_CHARS = 10, 300
"""Bounds of a hint. The lower one is the published method's."""
MAX_SENTENCES = 3
_MARKER = re.compile(r"[\[(]/?HINT[_ ](?:START|END)[\])]|<[|｜][^<>|｜]{0,40}[|｜]>", re.IGNORECASE)
"""Of hints, and chat control tokens with their names: what is between the signs is no prose."""
_FOREIGN = re.compile(r"[^\w\s.,;:!?'\"’‘“”()%/&+=–—-]")
"""Characters that prose does not need and markup, code and control tokens do."""


def clean(text: str, special_tokens: Iterable[str] = ()) -> str:
    """Return untrusted text as one line without markers, control tokens and signs of markup.

    Args:
        text: untrusted text.
        special_tokens: the texts that a tokenizer of the system would turn into control ids.
    """
    tokens = tuple(special_tokens)
    text = _FOREIGN.sub(" ", without_markers(text, tokens).replace("_", " "))
    # What stood apart may have come together where a sign was taken out.
    return one_line(without_markers(one_line(text), tokens))


def without_markers(text: str, special_tokens: Iterable[str] = ()) -> str:
    """Return untrusted text without markers and control tokens; line breaks stay."""
    return neutralise(_MARKER.sub(" ", text), special_tokens)


def is_prose(text: str) -> bool:
    """Whether a text has nothing that ``clean`` would have to take out."""
    return not _FOREIGN.search(text) and "_" not in text and neutralise(text) == text


def within_bounds(hint: str) -> bool:
    """Whether a hint is neither too short to say anything nor too long for a prompt."""
    return MIN_CHARS <= len(hint) <= MAX_CHARS
