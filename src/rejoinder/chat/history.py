"""A request's message history and the hashes by which it is recognised.

Every history has a rolling hash (a *chain*) after each of its messages. A turn's answer chain is
the chain of its request plus its answer, so a later request that carries the same history ends in
the same chain at the same place. Left out of chains, because clients rewrite it: system text
(clocks and hints), what client programs add to a user's words, surrounding white space, reasoning,
tool call ids, the spacing of tool arguments, and the text beside tool calls.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from rejoinder.chat.client_context import lasting_words, without_context
from rejoinder.types import Message

_SEED = b"rejoinder chain 1"


def _canonical_arguments(arguments: str) -> str:
    if not arguments.strip():
        return "{}"  # as it comes back where an API has objects for arguments
    try:
        return json.dumps(json.loads(arguments), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments.strip()


def _extend(chain: bytes, message: Message) -> bytes:
    """Return the chain after one more message; system text and pure client context change none."""
    if message.role == "system":
        return chain
    # Calls are enough to know an answer by, and many clients send no text back with them.
    calls_alone = message.role == "assistant" and message.tool_calls
    words = "" if calls_alone else lasting_words(message)
    name = ""
    if message.role == "user":
        if not words:
            return chain
        name = message.name or ""  # tells speakers apart; clients drop it from other roles
    parts = [message.role, name, words]
    for call in message.tool_calls:
        parts += [call.name, _canonical_arguments(call.arguments)]
    hashed = [chain]
    for part in parts:
        data = part.encode()
        hashed += (len(data).to_bytes(8, "little"), data)
    return blake2b(b"".join(hashed), digest_size=16).digest()


@dataclass(frozen=True)
class History:
    """A request's messages with their chains. Each message is hashed once."""

    messages: tuple[Message, ...]

    @cached_property
    def chains(self) -> list[bytes]:
        """[M] the chain after each message."""
        chain, chains = _SEED, []
        for message in self.messages:
            chain = _extend(chain, message)
            chains.append(chain)
        return chains

    @property
    def request_chain(self) -> bytes:
        """Hash of the whole history, for recognising the same request."""
        return self.chains[-1] if self.messages else _SEED

    def answer_chain(self, answer: Message) -> bytes:
        """Hash of the history and an answer to it: what the next request is recognised by."""
        return _extend(self.request_chain, answer)

    @cached_property
    def next_state(self) -> tuple[Message, ...]:
        """Everything said after the last answer; empty where nothing was."""
        if self.last_answer is None:
            return ()
        return without_context(self.messages[self.last_answer + 1 :])

    @cached_property
    def answers(self) -> list[int]:
        """Positions of earlier answers that something follows, oldest first.

        An assistant message at the very end is no answer but words put into the model's mouth.
        """
        found: list[int] = []
        follows = False
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index].role != "assistant":
                follows = True
            elif follows:
                found.append(index)
        return found[::-1]

    @property
    def last_answer(self) -> int | None:
        """Position of the last earlier answer."""
        return self.answers[-1] if self.answers else None

    @property
    def answer_chains(self) -> list[bytes]:
        """The chains by which earlier answers may be known, oldest first."""
        return [self.chains[index] for index in self.answers]
