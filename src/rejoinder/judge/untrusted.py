r"""Making what users, tools and the policy wrote harmless inside a judge prompt (rule 6).

Structure is protected by the prompts themselves (one JSON string, or one line, per message); this
module takes out what a careless reader could still mistake for structure: chat control tokens,
thinking tags, and the forms in which a judge gives its verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

_MARKUP = (
    (re.compile(r"[\"'`]score[\"'`]\s*:", re.IGNORECASE), "(score):"),
    (re.compile(r"\[(/?HINT[_ ](?:START|END))\]", re.IGNORECASE), r"(\1)"),
    (re.compile(r"<(/?\s*think(?:ing)?\s*)>", re.IGNORECASE), r"(\1)"),
)
_STATED_VERDICT = re.compile(
    r"\\boxed\s*(?:\{[^{}]*\})?|\b(?:class|label|mark|rating|score|verdict)\b[\"'`]?\s*[:=]\s*[\"'`]?"
    r"(?:positive|negative|good|bad|[+\-−]?[01]\b)[\"'`]?",
    re.IGNORECASE,
)
_CONTROL_TOKEN = re.compile(r"(?<!<)<++(?=[|｜])|(?<=[|｜])>+")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character: JSON can carry it, UTF-8 and tokenizers cannot."""
_LEFT_OUT = " […] "
_PUNCTUATION = re.compile(r"[^\w\s]")
_PASSES = 8
"""Removals one after another before text counts as built against them; honest text needs two."""


def neutralise(text: str, special_tokens: Iterable[str] = ()) -> str:
    """Return ``text`` without verdict markers, thinking tags and chat control tokens.

    Args:
        text: untrusted text.
        special_tokens: the texts that the judge's tokenizer would turn into control ids.
    """
    text = _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    literals = _compiled(tuple(special_tokens))
    text = _take_out(text, [*literals, _CONTROL_TOKEN, _STATED_VERDICT], literals)
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text


@lru_cache(maxsize=8)
def _compiled(special_tokens: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(re.escape(token)) for token in special_tokens if token.strip())


def _take_out(
    text: str, patterns: Sequence[re.Pattern[str]], literals: Sequence[re.Pattern[str]]
) -> str:
    """Remove all matches, also those that a removal makes by joining the halves of another.

    Each level of nesting costs a pass over the text. Text that is nested deeper than any honest
    one loses its punctuation instead, so that the time does not grow with the square of its length.
    """
    for _ in range(_PASSES):
        before = text
        for pattern in patterns:
            text = pattern.sub("", text)
        if text == before:
            return text
    text = _PUNCTUATION.sub(" ", text)
    for pattern in literals:  # of letters alone; the stand-in joins nothing
        text = pattern.sub("\N{REPLACEMENT CHARACTER}", text)
    return text


def one_line(text: str) -> str:
    """Return ``text`` as one line: a message can then not fake the start of another one."""
    return " ".join(text.split())


def shorten(text: str, limit: int) -> str:
    """Return ``text`` in about ``limit`` characters: both ends, and a mark where the middle was."""
    if len(text) <= limit:
        return text
    kept = max(2, limit - len(_LEFT_OUT))
    return text[: (kept + 1) // 2] + _LEFT_OUT + text[-(kept // 2) :]
