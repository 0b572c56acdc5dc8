"""What the LLM judge needs of a language model, wherever it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rejoinder.types import Message


@dataclass(frozen=True, slots=True)
class Completion:
    """One whole output."""

    text: str
    finish_reason: str | None
    """``stop``, ``length``, or whatever else an endpoint says."""


class CallFailed(Exception):
    """A call gave no output. Expected, hence no ``RejoinderError``: it becomes a failed vote."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        """Short and countable: ``timeout``, ``http_429``, ``unreachable``."""
        self.detail = detail
        """For people; holds no secrets."""


class PromptTooLong(CallFailed):
    """The prompt does not fit the model's context; a shorter one may."""

    def __init__(self, detail: str) -> None:
        super().__init__("too_long", detail)


class Completer(Protocol):
    """Completes one chat prompt."""

    @property
    def model_id(self) -> str:
        """Names model and place, for fingerprints; holds no secrets."""
        ...

    @property
    def special_tokens(self) -> Sequence[str]:
        """Texts that its tokenizer turns into control ids, as far as they are known."""
        ...

    async def complete(self, messages: Sequence[Message]) -> Completion:
        """Return one sampled output.

        Raises:
            CallFailed: there is none; ``PromptTooLong`` where a shorter prompt may help.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
