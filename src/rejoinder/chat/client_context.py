"""Text that a client's program adds to what its user wrote: clocks, run-time facts, notes.

Such text changes with every request and says nothing about an answer. It is rendered like any
other text, for the model must see what the client sent; but it takes no part in recognising a
history, and it is not part of a next state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from rejoinder.types import Message

_BLOCKS = (
    re.compile(
        r"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>.*?<<<END_OPENCLAW_INTERNAL_CONTEXT>>>", re.DOTALL
    ),
    re.compile(r"\n\nRuntime: agent=[^\n|]*(?: \| [^\n|]*)+\Z"),
    re.compile(r"\A\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d [A-Za-z0-9+:/_-]+\] "),
)
"""Each pattern needs one of ``_SIGNS``, which is much cheaper to look for."""
_SIGNS = ("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "\n\nRuntime: agent=")


def own_words(message: Message) -> str:
    """Return what was said in a message: its content without client context, stripped."""
    content = message.content.strip()
    if message.role == "user" and (
        content.startswith("[") or any(sign in content for sign in _SIGNS)
    ):
        for block in _BLOCKS:
            content = block.sub("", content)
        content = content.strip()
    return content


def without_context(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages as a next state: no system text, no client context.

    A user message that was nothing but context is left out; other messages stay as they are.
    """
    kept: list[Message] = []
    for message in messages:
        if message.role == "system":
            continue
        if message.role == "user":
            words = own_words(message)
            if not words:
                continue
            if words != message.content.strip():
                message = replace(message, content=words)  # noqa: PLW2901
        kept.append(message)
    return tuple(kept)
