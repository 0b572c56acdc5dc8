"""Who runs, and which tokens the next step computes."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rejoinder.engine.torch_engine.batch import Span
from rejoinder.engine.torch_engine.sequence import Generation, Sequence
from rejoinder.engine.torch_engine.slots import SlotPool, common_prefix
from rejoinder.engine.torch_engine.versions import Weights
from rejoinder.errors import EngineBusy, EngineError, EngineTimeout

PEOPLE = 0
"""Requests of this priority (or lower numbers) have somebody waiting for the next token."""
_WORTH_WAITING = 32
"""Shared prompt tokens for which a sequence waits until another one has computed them."""


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens [begin, end) of one sequence."""

    sequence: Sequence
    begin: int
    end: int

    @property
    def wanted(self) -> range:
        """Tokens of it that need logits."""
        return self.sequence.wanted(self.begin, self.end)

    def span(self) -> Span:
        """Return the same for the forward pass."""
        assert self.sequence.slot is not None
        return Span(self.sequence.slot.index, self.begin, self.sequence.ids[self.begin : self.end])


class Scheduler:
    """Waiting and running sequences. All methods belong to the engine's thread."""

    def __init__(
        self, slots: SlotPool, *, max_running: int, max_waiting: int, prefill_chunk: int
    ) -> None:
        self._slots = slots
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._chunk = prefill_chunk
        # Judges and evaluation leave room for people (rule 2).
        self._max_background = max_running - (max_running + 3) // 4 if max_running > 1 else 1
        self._waiting: list[Sequence] = []
        self._arrivals = 0
        self.running: list[Sequence] = []

    @property
    def waiting(self) -> int:
        """Sequences that have not started."""
        return len(self._waiting)

    def has_work(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self.running or self._waiting)

    def sequences(self) -> Iterator[Sequence]:
        """All of them."""
        yield from self.running
        yield from self._waiting

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence.

        Raises:
            EngineBusy: the queue is full.
        """
        if len(self._waiting) >= self._max_waiting:
            raise EngineBusy(
                f"{len(self._waiting)} requests are waiting for the engine; retry later or raise "
                "engine.max_waiting"
            )
        self._arrivals += 1
        sequence.order = self._arrivals
        bisect.insort(self._waiting, sequence, key=lambda waiting: waiting.rank)

    def drop_ended(self, now: float) -> None:
        """Drop sequences that were cancelled, and fail those whose deadline has passed."""
        for sequence in [*self.running, *self._waiting]:
            if sequence.cancelled:
                self.finish(sequence)
            elif sequence.deadline < now:
                seconds = sequence.request.deadline_s
                self.fail(sequence, EngineTimeout(f"no complete answer within {seconds} s"))

    def admit(self, live: Callable[[str], Weights]) -> None:
        """Start waiting sequences while there is room; ``live`` gives a policy's live weights."""
        for sequence in list(self._waiting):
            if len(self.running) >= self._max_running or not self._slots.has_free():
                return
            if sequence.request.priority > PEOPLE and len(self.running) >= self._max_background:
                return
            weights = sequence.weights or live(sequence.request.policy)
            if self._is_being_computed(sequence, weights):
                continue
            self._waiting.remove(sequence)
            sequence.weights = weights
            sequence.slot = self._slots.acquire(sequence.given[: sequence.reusable], weights.serial)
            sequence.cached = sequence.slot.length
            bisect.insort(self.running, sequence, key=lambda running: running.rank)

    def _is_being_computed(self, sequence: Sequence, weights: Weights) -> bool:
        """Whether a running prompt will soon hold much of this one: siblings, judge prompts."""
        ids = sequence.given[: sequence.reusable]
        coming = max(
            (
                common_prefix(ids, other.given[: other.goal])
                for other in self.running
                if other.weights is weights
                and other.computed < len(other.given) - 1
                and other.request.priority <= sequence.request.priority
            ),
            default=0,
        )
        if coming < _WORTH_WAITING:
            return False
        return coming > self._slots.longest_match(ids, weights.serial)[1]

    def plan(self) -> list[tuple[Weights, list[Work]]]:
        """Return the next step: sequences by weights, those with one token first.

        Sequences that need one token always take part. Longer ones share ``prefill_chunk`` tokens
        by rank; while people wait for tokens, background work gets a quarter of that.
        """
        budget = self._chunk
        people = any(sequence.request.priority <= PEOPLE for sequence in self.running)
        background = max(1, self._chunk // 4) if people else self._chunk
        groups: dict[int, tuple[Weights, list[Work], list[Work]]] = {}
        for sequence in self.running:
            assert sequence.weights is not None
            begin = sequence.computed
            count = sequence.goal - begin
            if count > 1:
                allowed = budget
                if sequence.request.priority > PEOPLE:
                    allowed = min(budget, background)
                    background -= min(count, allowed)
                count = min(count, allowed)
                budget -= count
            if count:
                weights = sequence.weights
                _, single, longer = groups.setdefault(weights.serial, (weights, [], []))
                (single if count == 1 else longer).append(Work(sequence, begin, begin + count))
        return [(weights, single + longer) for weights, single, longer in groups.values()]

    def switch(self, policy: str, weights: Weights) -> None:
        """Let the sequences that follow the live version go on with new weights.

        Answers under way keep their keys and values and will not serve prefix reuse. Prompts that
        have no answer token yet start again: their answer will be of one version altogether.
        """
        for sequence in self.running:
            if sequence.request.policy != policy or not sequence.follows_live:
                continue
            if sequence.weights is weights:
                continue
            assert isinstance(sequence, Generation)
            assert sequence.slot is not None
            sequence.weights = weights
            if sequence.sampled:
                sequence.slot.mix()
            else:
                sequence.slot.reset(weights.serial)
                sequence.cached = 0

    def uses(self, weights: Weights) -> bool:
        """Whether any sequence is or will be computed with these weights."""
        return any(sequence.weights is weights for sequence in self.sequences())

    def finish(self, sequence: Sequence) -> None:
        """Take a sequence out; its slot becomes free and keeps its rows."""
        sequence.done = True
        if sequence.slot is not None:
            self._slots.release(sequence.slot)
            sequence.slot = None
            self.running.remove(sequence)
        else:
            self._waiting.remove(sequence)

    def fail(self, sequence: Sequence, error: EngineError) -> None:
        """Take a sequence out and tell its caller why."""
        self.finish(sequence)
        sequence.sink.put(error)

    def forget(self, dropped: list[Weights]) -> None:
        """Free the rows that dropped weights computed."""
        self._slots.forget({weights.serial for weights in dropped})
