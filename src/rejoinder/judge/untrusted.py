r"""Making what users, tools and the policy wrote harmless inside a judge prompt (rule 6).

Structure is protected by the prompts themselves (one JSON string, or one line, per message); this
module takes out what a careless reader could still mistake for structure: chat control tokens,
thinking tags, and the forms in which a judge gives its verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

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
_CONTROL_TOKEN = re.compile(r"<(?=[|｜])|(?<=[|｜])>")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character: JSON can carry it, UTF-8 and tokenizers cannot."""
_LEFT_OUT = " […] "


def neutralise(text: str, special_tokens: Iterable[str] = ()) -> str:
    """Return ``text`` without verdict markers, thinking tags and chat control tokens.

    Args:
        text: untrusted text.
        special_tokens: the texts that the judge's tokenizer would turn into control ids.
    """
    text = _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    text = _take_out(text, [re.escape(token) for token in special_tokens if token.strip()])
    text = _take_out(_CONTROL_TOKEN.sub("", text), [_STATED_VERDICT])
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text


def _take_out(text: str, patterns: Sequence[str | re.Pattern[str]]) -> str:
    """Remove all matches, also those that a removal makes by joining the halves of another."""
    before = None
    while text != before:
        before = text
        for pattern in patterns:
            text = re.sub(pattern, "", text)
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
