"""A conversation in the plainer forms that some chat templates insist on.

Agents write several system messages, also between others, and several messages of a user in a row.
Some templates take one system message, at the beginning, or none, and strictly alternating roles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

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
    for role, group in groupby(messages, attrgetter("role")):
        first, *others = group
        if others and role in ("system", "user"):
            # All at once: one after the other would copy a long row again for each of its texts.
            contents = [first.content, *(other.content for other in others)]
            made.append(replace(first, content=BETWEEN.join(contents)))
        else:
            made += [first, *others]
    return tuple(made)
