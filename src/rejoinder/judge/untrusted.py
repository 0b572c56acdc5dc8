r"""Making what users, tools and the policy wrote harmless inside a judge prompt (rule 6).

Structure is protected by the prompts themselves (one JSON string, or one line, per message); this
module takes out what a careless reader could still mistake for structure: chat control tokens,
thinking tags, and the forms in which a judge gives its verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_VERDICT_FORMS = (
    (re.compile(r"\\boxed\b", re.IGNORECASE), "boxed"),
    (re.compile(r"[\"'`]score[\"'`]\s*:", re.IGNORECASE), "(score):"),
    (re.compile(r"\[(/?HINT[_ ](?:START|END))\]", re.IGNORECASE), r"(\1)"),
    (re.compile(r"<(/?\s*think(?:ing)?\s*)>", re.IGNORECASE), r"(\1)"),
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
    for pattern, replacement in _VERDICT_FORMS:
        text = pattern.sub(replacement, text)
    text = _CONTROL_TOKEN.sub("", text)
    # Taking one token out can join the halves of another.
    tokens = [token for token in special_tokens if token.strip()]
    while found := [token for token in tokens if token in text]:
        for token in found:
            text = text.replace(token, "")
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
