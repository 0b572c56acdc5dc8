"""How much of the request comes back in what the person says next: asking again repeats words."""

from __future__ import annotations

from collections.abc import Sequence

from rejoinder.judge.transcript import content_of
from rejoinder.types import Message

_SIZE = 4
_MAX_CHARS = 2000


def echo(
    context: Sequence[Message], answer: Message, next_state: Sequence[Message]
) -> tuple[float, float] | None:
    """Return two shares of the person's new text, in 0..1; None if no person wrote both.

    The first is the share of its character 4-grams (which need no word borders, so that they
    serve all scripts) that the request has too; the second counts those only which the answer
    lacks.
    """
    asked = [message for message in context if message.role == "user"]
    said = [message for message in next_state if message.role == "user"]
    if not asked or not said:
        return None
    request = _grams(asked[-1].content)
    reply = _grams(" ".join(message.content for message in said))
    repeated = reply & request
    return len(repeated) / len(reply), len(repeated - _grams(content_of(answer))) / len(reply)


def _grams(text: str) -> set[str]:
    text = " ".join(text[:_MAX_CHARS].casefold().split())
    return {text[start : start + _SIZE] for start in range(max(1, len(text) - _SIZE + 1))}
