"""The conversation as a judge sees it: messages as JSON lines within a budget of characters.

One JSON object per line keeps roles and content apart whatever the content says: quotes and line
breaks in it are escaped, so that no message can end itself and begin another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rejoinder.judge.untrusted import neutralise, shorten
from rejoinder.types import Message

_SMALLEST = 80
"""Characters that a message keeps however long the others are."""


def content_of(message: Message) -> str:
    """Return what a message says or does: its text, then its tool calls. Reasoning stays out."""
    calls = [f"[calls {call.name} {call.arguments}]" for call in message.tool_calls]
    return "\n".join(part for part in (message.content, *calls) if part)


def recent(context: Sequence[Message], count: int) -> list[Message]:
    """Return the last ``count`` messages that are no system text, the last user's among them."""
    spoken = [message for message in context if message.role != "system"]
    kept = spoken[-count:]
    if not any(message.role == "user" for message in kept):
        kept = [message for message in spoken if message.role == "user"][-1:] + kept
    return kept


def json_lines(messages: Sequence[Message], budget: int, special_tokens: Sequence[str] = ()) -> str:
    """Return one ``{"role": ..., "content": ...}`` per line, long contents cut in the middle.

    Args:
        messages: oldest first.
        budget: characters of content in all; shared evenly, what short ones leave goes to longer.
        special_tokens: of the judge's tokenizer, where it is known; they are taken out.
    """
    contents = [neutralise(content_of(message), special_tokens) for message in messages]
    limits = shares([len(content) for content in contents], budget)
    lines = []
    for message, content, limit in zip(messages, contents, limits, strict=True):
        entry = {"role": message.role, "content": shorten(content, limit)}
        if message.role == "tool" and message.name:
            entry["name"] = neutralise(message.name, special_tokens)
        lines.append(json.dumps(entry, ensure_ascii=False))
    return "\n".join(lines)


def shares(lengths: Sequence[int], budget: int) -> list[int]:
    """Split a budget of characters: short contents get all they need, the others equal parts."""
    shares = [0] * len(lengths)
    left, waiting = budget, sorted(range(len(lengths)), key=lambda index: lengths[index])
    for position, index in enumerate(waiting):
        fair = left // (len(waiting) - position)
        shares[index] = max(_SMALLEST, min(lengths[index], fair))
        left = max(0, left - shares[index])
    return shares
