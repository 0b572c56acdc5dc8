"""One answer while it is sampled: exact ids for the journal, typed events for the client.

What is recorded is what the engine sampled, id for id; nothing is ever made from text. What the
client sees is what the model's chat family reads in those ids, up to a stop string.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rejoinder.chat.families.base import AnswerReader
from rejoinder.chat.families.events import AnswerEvent, AnswerParts
from rejoinder.chat.history import History
from rejoinder.engine.base import ClientLogprob, TokenChunk
from rejoinder.journal.records import AbortedTurn, FinishedTurn, KeptResponse
from rejoinder.types import Fate, FinishReason, Message, VersionRun


@dataclass(frozen=True, slots=True)
class Piece:
    """What one chunk gives the client."""

    events: Sequence[AnswerEvent]
    """May be empty: part of a character, stop string or tool call is held back."""
    ids: Sequence[int]
    logprobs: Sequence[ClientLogprob]
    """[len(ids)] where the client asked for them, else empty."""


class AnswerCapture:
    """Collects the chunks of one answer."""

    def __init__(self, turn_id: str, choice: int, reader: AnswerReader) -> None:
        self.turn_id = turn_id
        self.choice = choice
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.client: list[ClientLogprob] = []
        self.finish_reason: FinishReason | None = None
        self.cached_tokens = 0
        self._runs: list[VersionRun] = []
        self._parts = AnswerParts()
        self._reader = reader
        self._started = time.perf_counter()
        self.first_token_s: float | None = None
        """Seconds from arrival to the first sampled token."""

    def message(self) -> Message:
        """Return the answer so far as the client sees it."""
        return self._parts.message()

    @property
    def told_reason(self) -> str | None:
        """Why the answer ended, as clients are told: a stop after a tool call has its own name."""
        if self.finish_reason is FinishReason.STOP and self._parts.calls:
            return "tool_calls"
        return self.finish_reason

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the answer, if one did."""
        return self._reader.stop_string

    @property
    def versions(self) -> Sequence[VersionRun]:
        """Which version sampled which tokens."""
        return self._runs

    def feed(self, chunk: TokenChunk) -> Piece:
        """Take a chunk; chunks after the end of the answer are not part of it."""
        if self.finish_reason is not None:
            return Piece((), (), ())
        ids = chunk.ids
        if ids:
            if self.first_token_s is None:
                self.first_token_s = time.perf_counter() - self._started
                self.cached_tokens = chunk.cached_tokens
            self.ids += ids
            self.logprobs += chunk.logprobs
            self._count(chunk.version, len(ids))
        client = chunk.client or ()
        self.client += client
        events = self._reader.feed(ids, last=chunk.finish_reason is not None)
        self.finish_reason = chunk.finish_reason
        if self._reader.stop_string is not None:
            # Engines without stop strings would go on; the answer ends here in any case.
            self.finish_reason = FinishReason.STOP
        for event in events:
            self._parts.add(event)
        return Piece(events, ids, client)

    def _count(self, version: int, count: int) -> None:
        if self._runs and self._runs[-1].version == version:
            count += self._runs.pop().count
        self._runs.append(VersionRun(version, count))

    def finished(self, history: History, response: KeptResponse | None = None) -> FinishedTurn:
        """Return the record of a complete answer, and of what its client may ask for again."""
        assert self.finish_reason is not None, "the answer is not complete"
        message = self.message()
        return FinishedTurn(
            turn_id=self.turn_id,
            answered_at=time.time(),
            answer_ids=self.ids,
            logprobs=self.logprobs,
            versions=self._runs,
            finish_reason=self.finish_reason,
            message=message,
            answer_chain=history.answer_chain(message),
            first_token_s=self.first_token_s,
            total_s=time.perf_counter() - self._started,
            response=response,
        )

    def aborted(self, fate: Fate, error: str | None = None) -> AbortedTurn:
        """Return the record of an answer that broke off."""
        return AbortedTurn(self.turn_id, fate, self.ids, self.logprobs, self._runs, error)
