"""The seam of hint judges: (context, answer, next state) become hints, or a reason for none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from rejoinder.journal.records import HintMaker
from rejoinder.types import Message


class HintFate(StrEnum):
    """Why a turn got no hint (rule 4: no silent drop)."""

    NOTHING_SAID = "nothing_said"
    """The next state says nothing of how the answer should have been."""
    BEYOND_RULES = "beyond_rules"
    """It asks for something that the rules of a judge without a model do not read as a matter of
    how to answer: another language, other readers, or what to tell."""
    NO_MAJORITY = "no_majority"
    """Not more than half of the requested votes accepted."""
    LEAK = "leak"
    """It would have told the teacher what only the next state knows."""
    BAD_LENGTH = "bad_length"
    """Shorter or longer than a hint may be."""
    FAILED = "failed"
    """No vote succeeded, or too few for a majority and calls failed: another attempt may help."""


@dataclass(frozen=True, slots=True)
class Hinting:
    """What a hint judge says of one turn."""

    hints: tuple[str, ...]
    """All distinct accepted ones, each one line of one to three sentences; may be empty."""
    why: HintFate | None = None
    """Set exactly when there are no hints."""
    detail: str = ""
    """For people; where calls failed it begins with a code as in ``voting.failed_vote``.
    Untrusted text."""
    seconds: float = 0.0
    failed_calls: tuple[str, ...] = ()
    """The reasons of all calls that failed, as of ``voting.failed_vote``; also where others gave
    hints, for each is counted (rule 4)."""

    def __post_init__(self) -> None:
        if (self.why is None) != bool(self.hints):
            raise ValueError(f"{len(self.hints)} hints with why {self.why!r}: set exactly one")

    @property
    def reason(self) -> str | None:
        """Why there are no hints, with the detail; None if there are some. Untrusted text."""
        return f"{self.why}: {self.detail}" if self.why and self.detail else self.why


class HintJudge(Protocol):
    """Draws hints for one answer from what came after it."""

    @property
    def maker(self) -> HintMaker:
        """What is kept with each of its hints."""
        ...

    async def hints(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Hinting:
        """Return the hints; failed calls are failed votes behind them, never exceptions.

        Args:
            context: the request's messages, oldest first.
            answer: what the policy answered.
            next_state: every message after the answer, with its role; at least one.
        """
        ...

    async def check(self) -> None:
        """Try what hinting needs; for ``doctor`` and for the start of the judge.

        Raises:
            ConfigError: it can never work as configured; the message says what to change.
            EngineError: the engine does not answer, or refuses, right now.
            JudgeError: the endpoint does not answer, or refuses, right now.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
