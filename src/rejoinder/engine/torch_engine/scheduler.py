"""Who runs, and which tokens the next step computes."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rejoinder.engine.torch_engine.batch import Span
from rejoinder.engine.torch_engine.fairness import caller_of, fair_order
from rejoinder.engine.torch_engine.pace import Pace
from rejoinder.engine.torch_engine.sequence import Generation, Sequence
from rejoinder.engine.torch_engine.slots import SlotPool, common_prefix
from rejoinder.engine.torch_engine.versions import Weights
from rejoinder.errors import EngineBusy, EngineError, EngineTimeout

PEOPLE = 0
"""Requests of this priority (or lower numbers) have somebody waiting for the next token."""
_PATIENT_STEPS = 4
"""Of so many steps with prompts of people, one is left to those of judges."""
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


def _is_background(sequence: Sequence) -> bool:
    return sequence.request.priority > PEOPLE


def prompt_tokens(works: list[Work]) -> int:
    """Count the tokens of sequences that compute more than one."""
    return sum(work.end - work.begin for work in works if work.end - work.begin > 1)


class Scheduler:
    """Waiting and running sequences. All methods belong to the engine's thread."""

    def __init__(
        self, slots: SlotPool, *, max_running: int, max_waiting: int, prefill_chunk: int
    ) -> None:
        """Share the places out.

        Judges and evaluation leave room for people (rule 2), and have a few places of their own:
        people who talk without a pause would keep them waiting for ever, and nothing would be
        learnt from what they say.
        """
        self._slots = slots
        self._reserved = min(max(1, max_running // 8), slots.size - 1)
        self._max_people = min(max_running, slots.size - self._reserved)
        self._max_background = max(1, self._max_people - (self._max_people + 3) // 4)
        self._max_waiting = max_waiting
        self._passed_over = 0
        """Of the last ``_PATIENT_STEPS`` steps, those in which background prompts had to wait."""
        self.pace = Pace(prefill_chunk)
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
        """Queue a sequence. In a full queue it takes the last place of what is less urgent.

        Where all is as urgent, it takes that of the caller with the most waiting.

        Raises:
            EngineBusy: the queue is full of what is more urgent, or no other caller has more
                waiting than this one.
        """
        if len(self._waiting) >= self._max_waiting:
            self._make_room(sequence)
        self._arrivals += 1
        sequence.order = self._arrivals
        bisect.insort(self._waiting, sequence, key=lambda waiting: waiting.rank)

    def _make_room(self, newcomer: Sequence) -> None:
        busy = EngineBusy(
            f"{len(self._waiting)} requests are waiting for the engine; retry later or raise "
            "engine.max_waiting"
        )
        urgency, last = newcomer.request.priority, self._waiting[-1]
        if last.request.priority <= urgency:
            # Never one that is more urgent: no person is refused because of a judge (rule 2).
            rivals = [one for one in self._waiting if one.request.priority == urgency]
            counts = Counter(map(caller_of, rivals))
            longest, most = max(counts.items(), key=lambda item: item[1], default=("", 0))
            if most <= counts[caller_of(newcomer)] + 1:
                raise busy
            last = next(one for one in reversed(rivals) if caller_of(one) == longest)
        self.fail(last, busy)

    def drop_ended(self, now: float) -> None:
        """Drop sequences that were cancelled, and fail those whose deadline has passed."""
        for sequence in [*self.running, *self._waiting]:
            if sequence.cancelled:
                self.finish(sequence)
            elif sequence.deadline < now:
                seconds = sequence.request.deadline_s
                self.fail(sequence, EngineTimeout(f"no complete answer within {seconds} s"))

    def admit(self, live: Callable[[str], Weights]) -> None:
        """Start waiting sequences while there is room; ``live`` gives a policy's live weights.

        Of one priority the caller with the fewest running sequences is next, and of a caller's the
        oldest: who sends much waits behind its own requests, not others behind them.
        """
        if not self._slots.has_free():
            return
        # Found out once for all of them: a long queue must not cost every step milliseconds.
        has_place = {kind: self._has_place(is_background=kind) for kind in (False, True)}
        waiting = [one for one in self._waiting if has_place[_is_background(one)]]
        for sequence in fair_order(waiting, self.running):
            if not self._slots.has_free():
                return
            if not self._has_place(is_background=_is_background(sequence)):
                continue
            weights = sequence.weights or live(sequence.request.policy)
            if self._is_being_computed(sequence, weights):
                continue
            self._waiting.remove(sequence)
            sequence.weights = weights
            sequence.slot = self._slots.acquire(
                sequence.given[: sequence.reusable], sequence.origin(weights)
            )
            sequence.cached = sequence.slot.length
            bisect.insort(self.running, sequence, key=lambda running: running.rank)

    def _has_place(self, *, is_background: bool) -> bool:
        background = sum(_is_background(one) for one in self.running)
        if is_background:
            return background < self._reserved or len(self.running) < self._max_background
        return len(self.running) - background < self._max_people

    def _is_being_computed(self, sequence: Sequence, weights: Weights) -> bool:
        """Whether a running prompt will soon hold much of this one: siblings, judge prompts."""
        ids = sequence.given[: sequence.reusable]
        coming = max(
            (
                common_prefix(ids, other.given[: other.goal])
                for other in self.running
                if other.weights is weights
                and other.salt == sequence.salt
                and other.computed < len(other.given) - 1
                and other.request.priority <= sequence.request.priority
            ),
            default=0,
        )
        if coming < _WORTH_WAITING:
            return False
        return coming > self._slots.longest_match(ids, sequence.origin(weights))[1]

    def plan(self) -> list[tuple[Weights, list[Work]]]:
        """Return the next step: sequences by weights, those with one token first.

        Sequences that need one token take part, except where ``_shares`` says otherwise. The others
        share what ``Pace`` allows; while people wait for tokens, background work gets at most a
        quarter of a full chunk.
        """
        shares = self._shares()
        groups: dict[int, tuple[Weights, list[Work], list[Work]]] = {}
        for sequence in self.running:
            if sequence.rests:
                continue
            assert sequence.weights is not None
            begin = sequence.computed
            count = shares.get(sequence, sequence.goal - begin)
            if count:
                weights = sequence.weights
                _, single, longer = groups.setdefault(weights.serial, (weights, [], []))
                (single if count == 1 else longer).append(Work(sequence, begin, begin + count))
        return [(weights, single + longer) for weights, single, longer in groups.values()]

    def _shares(self) -> dict[Sequence, int]:
        """Return how many tokens each prompt gets, and each token that costs a pass of its own.

        Urgent ones go first. The one that waits longest gets half in any case, and for the rest
        short prompts pass long ones, so that none waits until a long prompt is through. Background
        work has a small part of its own, else prompts that never end would keep it from any.
        """
        people = [one for one in self.running if not _is_background(one)]
        most = self.pace.most
        waiting = any(one.goal - one.computed == 1 for one in people)
        left = self.pace.allowed() if waiting else most
        background = max(1, most // 4) if people else most
        apart = self._passes_of_background(people) if waiting else set()
        need = {
            one: count
            for one in self.running
            if (count := one.goal - one.computed) > 1 or (count == 1 and one in apart)
        }
        shares = dict.fromkeys(need, 0)  # also of those that have to wait
        if waiting and (chosen := self._whose_turn_it_is(need)) != need:
            need, background = chosen, left  # a step of their own
        oldest = next(iter(need), None)
        order = sorted(need, key=lambda one: (one.request.priority, need[one], one.order))
        turns = [(one, left) for one in order]
        if oldest is not None:
            turns.insert(0, (oldest, (left + 1) // 2))
        patient = next((one for one in need if _is_background(one)), None)
        if patient is not None:
            turns.insert(0, (patient, (left + 7) // 8))
        for one, limit in turns:
            count = min(need[one] - shares[one], limit, left)
            if _is_background(one):
                count = min(count, background)
                background -= count
            shares[one] += count
            left -= count
        return shares

    def _passes_of_background(self, people: list[Sequence]) -> set[Sequence]:
        """Return background work by weights that no answer of a person is sampled from.

        One token of it reads all weights, which takes as long as dozens of prompt tokens.
        """
        shared = {one.weights for one in people if one.goal - one.computed == 1}
        return {one for one in self.running if _is_background(one) and one.weights not in shared}

    def _whose_turn_it_is(self, need: dict[Sequence, int]) -> dict[Sequence, int]:
        """Leave prompts of people or work of the background, where there are both.

        Judges use other weights: they cost a pass of their own, and both together in one step would
        be felt by whoever waits for the next token.
        """
        background = {one for one in need if _is_background(one)}
        if not background or len(background) == len(need):
            self._passed_over = 0
            return need
        self._passed_over = (self._passed_over + 1) % _PATIENT_STEPS
        is_theirs = self._passed_over == 0
        return {one: count for one, count in need.items() if (one in background) is is_theirs}

    def switch(self, policy: str, weights: Weights) -> None:
        """Let the sequences that follow the live version go on with new weights.

        Answers under way keep their keys and values and will not serve prefix reuse. Prompts that
        have no answer token yet start again: their answer will be of one version altogether. One
        that had to start again before stays with its version until it answers: else a long prompt
        would never be through where updates are frequent.
        """
        for sequence in self.running:
            if sequence.request.policy != policy or not sequence.follows_live:
                continue
            if sequence.weights is weights:
                continue
            assert isinstance(sequence, Generation)
            assert sequence.slot is not None
            if sequence.sampled:
                sequence.slot.mix()
            elif sequence.restarted:
                continue
            else:
                sequence.restarted = True
                sequence.slot.reset(sequence.origin(weights))
                sequence.cached = 0
            sequence.weights = weights

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
        sequence.weights = None  # whoever still reads the answer must not keep them in memory

    def fail(self, sequence: Sequence, error: EngineError) -> None:
        """Take a sequence out and tell its caller why."""
        self.finish(sequence)
        sequence.sink.put(error)

    def forget(self, dropped: list[Weights]) -> None:
        """Free the rows that dropped weights computed."""
        self._slots.forget({weights.serial for weights in dropped})
