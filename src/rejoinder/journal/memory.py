"""What the writer remembers of recent turns, so that shared history is found without a read.

A turn's prompt is mostly its parent's prompt and answer. The memory is bounded; on a miss a prompt
is stored in full, which costs space and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from rejoinder.journal.columns import ID_BYTES
from rejoinder.types import Message

MAX_TURNS = 4096
MAX_BYTES = 64 << 20
MESSAGE_BYTES = 128
"""What a message takes beside its text."""
MAX_DEPTH = 64
"""Prompts a decoder must read before a turn's own; a deeper one is stored in full."""


@dataclass(slots=True)
class Remembered:
    """The full history of one turn; the answer is empty until it is finished."""

    session_id: str
    depth: int
    prompt: bytes
    messages: list[Message]
    """The request's messages without the leading system messages."""
    answer: bytes = b""
    message: Message | None = None
    size: int = 0
    """Bytes that count against the bound."""


@dataclass(frozen=True, slots=True)
class Shared:
    """How much of a request its base has already."""

    base_id: str | None = None
    depth: int = 0
    ids: int = 0
    messages: int = 0


NOTHING = Shared()


class TurnMemory:
    """A bounded map of turn id to history. Used by the writer's thread only."""

    def __init__(self, max_turns: int = MAX_TURNS, max_bytes: int = MAX_BYTES) -> None:
        self._turns: OrderedDict[str, Remembered] = OrderedDict()
        self._bytes = 0
        self._max_turns = max_turns
        self._max_bytes = max_bytes

    def put(self, turn_id: str, turn: Remembered) -> None:
        """Remember a request, forgetting the oldest ones beyond the bounds."""
        self.forget(turn_id)
        turn.size = len(turn.prompt) + 256 + sum(map(_weight, turn.messages))
        self._turns[turn_id] = turn
        self._bytes += turn.size
        while len(self._turns) > self._max_turns or self._bytes > self._max_bytes:
            self.forget(next(iter(self._turns)))

    def finish(self, turn_id: str, answer: bytes, message: Message) -> None:
        """Add the answer, if the turn is still remembered."""
        turn = self._turns.get(turn_id)
        if turn is not None:
            more = len(answer) - len(turn.answer)
            turn.answer = answer
            turn.message = message
            turn.size += more
            self._bytes += more

    def forget(self, turn_id: str) -> None:
        """Drop a turn: it is old, or it was not written after all."""
        turn = self._turns.pop(turn_id, None)
        if turn is not None:
            self._bytes -= turn.size

    def shared(
        self, parent_id: str | None, session_id: str, prompt: bytes, messages: list[Message]
    ) -> Shared:
        """Return what a request shares with its parent's request and answer.

        Only within a session, because retention deletes sessions as a whole.
        """
        parent = self._turns.get(parent_id) if parent_id is not None else None
        if parent is None or parent.message is None:
            return NOTHING
        if parent.session_id != session_id or parent.depth + 1 >= MAX_DEPTH:
            return NOTHING
        ids = _common_bytes(parent.prompt, prompt)
        if ids == len(parent.prompt):
            ids += _common_bytes(parent.answer, prompt[ids:])
        count = len(parent.messages)
        same = 0
        if messages[:count] == parent.messages:
            same = count + (messages[count : count + 1] == [parent.message])
        return Shared(parent_id, parent.depth + 1, ids // ID_BYTES, same)


def _weight(message: Message) -> int:
    """Return about how many bytes a message takes in memory."""
    size = MESSAGE_BYTES + len(message.content)
    if message.tool_calls:
        size += sum(MESSAGE_BYTES + len(call.arguments) for call in message.tool_calls)
    if message.reasoning:
        size += len(message.reasoning)
    return size


def _common_bytes(left: bytes, right: bytes) -> int:
    """Return the length of the common prefix in bytes; the usual case is one comparison."""
    if right.startswith(left):
        return len(left)
    low, high = 0, min(len(left), len(right))
    while low < high:  # bisection: a few block comparisons instead of a loop over bytes
        middle = (low + high + 1) // 2
        if left[:middle] == right[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
