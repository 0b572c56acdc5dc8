"""A conversation in the plainer forms that some chat templates insist on.

Agents write several system messages, also between others, and several messages of a user in a row.
Some templates take one system message, at the beginning, or none, and strictly alternating roles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rejoinder.types import Message

BETWEEN = "\n\n"
"""Between texts that become one message."""


def plainer_forms(messages: Sequence[Message]) -> Iterator[tuple[Message, ...]]:
    """Yield the forms to try when a template refuses a conversation, the fullest first.

    First the system messages at the beginning are one and later ones are said by the user; then
    the user says them all. Successive messages of a user are one. No text is lost.
    """
    known = tuple(messages)
    leading = next((i for i, one in enumerate(known) if one.role != "system"), len(known))
    for kept in (leading, 0):
        form = _joined([*known[:kept], *map(_by_user, known[kept:])])
        if form != known:
            yield form


def _by_user(message: Message) -> Message:
    return replace(message, role="user") if message.role == "system" else message


def _joined(messages: Sequence[Message]) -> tuple[Message, ...]:
    made: list[Message] = []
    for message in messages:
        last = made[-1] if made else None
        if last is not None and last.role == message.role and message.role in ("system", "user"):
            made[-1] = replace(last, content=BETWEEN.join((last.content, message.content)))
        else:
            made.append(message)
    return tuple(made)
