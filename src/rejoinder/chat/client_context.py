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

_BEGIN, _END = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
_LINES = (
    re.compile(r"\n\nRuntime: agent=[^\n|]*(?: \| [^\n|]*)+\Z"),
    re.compile(r"\A\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d [A-Za-z0-9+:/_-]+\] "),
)
"""Each needs one of ``_SIGNS``, or "[" at the start, which is much cheaper to look for."""
_SIGNS = (_BEGIN, "\n\nRuntime: agent=")


def own_words(message: Message) -> str:
    """Return what was said in a message: its content without client context, stripped."""
    content = message.content.strip()
    if message.role == "user" and (
        content.startswith("[") or any(sign in content for sign in _SIGNS)
    ):
        content = _without_blocks(content)
        for line in _LINES:
            content = line.sub("", content)
        content = content.strip()
    return content


def _without_blocks(text: str) -> str:
    """Cut out all blocks in linear time; a pattern would look for an end from each beginning."""
    kept: list[str] = []
    at = 0
    while (begin := text.find(_BEGIN, at)) >= 0 and (end := text.find(_END, begin)) >= 0:
        kept.append(text[at:begin])
        at = end + len(_END)
    return "".join([*kept, text[at:]])


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
