"""The conversation as a judge sees it: messages as JSON lines within a budget of characters.

One JSON object per line keeps roles and content apart whatever the content says: quotes and line
breaks in it are escaped, so that no message can end itself and begin another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from rejoinder.judge.untrusted import neutralise, shorten
from rejoinder.types import Message

FORM = 2
"""Part of fingerprints; raised whenever the same messages are cut or cleaned otherwise."""
_SMALLEST = 80
"""Characters that a message keeps however long the others are."""
_FRAME = 20
"""Characters that even a message without content counts for, so that their number is bounded."""
_LONGEST_NAME = 80
_ROOM = 4
"""Times the budget that is cleaned: enough to fill it, and hostile text costs no more than this."""


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
            Where that would leave too little of each, the oldest are left out, and a line says so.
        special_tokens: of the judge's tokenizer, where it is known; they are taken out.
    """
    left_out, kept = fit(messages, budget, lambda text: neutralise(text, special_tokens), _ROOM)
    lines = [json.dumps({"left_out": f"{left_out} earlier messages"})] if left_out else []
    for message, content in kept:
        entry = {"role": message.role, "content": content}
        if message.role == "tool" and message.name:
            name = neutralise(shorten(message.name, _ROOM * _LONGEST_NAME), special_tokens)
            entry["name"] = shorten(name, _LONGEST_NAME)
        lines.append(json.dumps(entry, ensure_ascii=False))
    return "\n".join(lines)


def fit(
    messages: Sequence[Message], budget: int, clean: Callable[[str], str], room: int
) -> tuple[int, list[tuple[Message, str]]]:
    """Return how many of the oldest were left out, and the others with what is shown of them.

    Args:
        messages: oldest first.
        budget: characters of content in all.
        clean: makes a content harmless; may take time in proportion to it.
        room: times the budget that is cleaned before contents get their final length.
    """
    contents = [content_of(message) for message in messages]
    first = len(contents) - _newest([len(content) for content in contents], budget)
    rough = _cut(contents[first:], room * budget)
    shown = _cut([clean(content) for content in rough], budget)
    return first, list(zip(messages[first:], shown, strict=True))


def _newest(lengths: Sequence[int], budget: int) -> int:
    """Return how many of the newest contents fit, each at its smallest; at least one."""
    count = 0
    for length in reversed(lengths):
        budget -= max(_FRAME, min(length, _SMALLEST))
        if budget < 0:
            break
        count += 1
    return max(count, min(1, len(lengths)))


def _cut(contents: Sequence[str], budget: int) -> list[str]:
    limits = shares([len(content) for content in contents], budget)
    return [shorten(content, limit) for content, limit in zip(contents, limits, strict=True)]


def shares(lengths: Sequence[int], budget: int) -> list[int]:
    """Split a budget of characters: short contents get all they need, the others equal parts."""
    shares = [0] * len(lengths)
    left, waiting = budget, sorted(range(len(lengths)), key=lambda index: lengths[index])
    for position, index in enumerate(waiting):
        shares[index] = min(lengths[index], left // (len(waiting) - position))
        left -= shares[index]
    return shares
