"""Text that a client's program adds to what its user wrote: clocks, run-time facts, notes.

Such text changes with every request and says nothing about an answer. It is rendered like any
other text, for the model must see what the client sent; but it takes no part in recognising a
history, and it is not part of a next state. A new client is a new row in one of the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rejoinder.types import Message


@dataclass(frozen=True, slots=True)
class Block:
    """Notes between two marks, anywhere in a user message, any number of times."""

    name: str
    begin: str
    end: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line at one end of a user message."""

    name: str
    sign: str
    """Stands in every such message: much cheaper to look for than the pattern."""
    pattern: re.Pattern[str]
    """Anchored to the beginning or the end, and linear in what it reads."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """What a program's history says later in place of a request of its own."""

    name: str
    begins: tuple[str, ...]
    """How such requests begin."""
    kept: str
    """How what stands for them begins."""


BLOCKS = (
    Block(
        "openclaw_context",
        "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>",
        "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
    ),
    Block("system_reminder", "<system-reminder>", "</system-reminder>"),
    Block("environment_details", "<environment_details>", "</environment_details>"),
)
LINES = (
    Line(
        "openclaw_runtime",
        "\n\nRuntime: agent=",
        re.compile(r"\n\nRuntime: agent=[^\n|]*(?: \| [^\n|]*)+\Z"),
    ),
    Line(
        "openclaw_clock",
        "[",
        re.compile(r"\A\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d [A-Za-z0-9+:/_-]+\] "),
    ),
)
STAND_INS = (
    StandIn(
        "openclaw_heartbeat",
        ("Follow the heartbeat monitor scratch context",),
        "[OpenClaw heartbeat poll]",
    ),
    StandIn(
        "openclaw_cron",
        ("A scheduled reminder has been triggered.", "A scheduled cron event was triggered"),
        "[OpenClaw cron wake]",
    ),
    StandIn(
        "openclaw_exec",
        ("An async command you ran earlier ", "An async command completion event was triggered"),
        "[OpenClaw exec completion]",
    ),
)


def own_words(message: Message) -> str:
    """Return what was said in a message: its content without client context, stripped."""
    content = message.content.strip()
    if message.role != "user":
        return content
    for block in BLOCKS:
        if block.begin in content:
            content = _without(block, content).strip()
    for line in LINES:
        if line.sign in content:
            content = line.pattern.sub("", content)
    return content.strip()


def lasting_words(message: Message) -> str:
    """Return the part of ``own_words`` that later requests will tell, however they put it."""
    words = own_words(message)
    if message.role != "user":
        return words
    for one in STAND_INS:
        if words.startswith((one.kept, *one.begins)):
            return one.kept
    return words


def _without(block: Block, text: str) -> str:
    """Cut out all blocks in linear time; a pattern would look for an end from each beginning."""
    kept: list[str] = []
    at = 0
    while (begin := text.find(block.begin, at)) >= 0:
        end = text.find(block.end, begin)
        if end < 0:
            break
        kept.append(text[at:begin])
        at = end + len(block.end)
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
