"""What teachers say of the answers of several seats, once they have read the hints.

As the trainer's teacher does (``trainer/teacher.py``), with weights stacked: frozen teachers are
one and the same model, those that follow their policy are a stack of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rejoinder.evaluation.pack.average import PackedAverage
from rejoinder.evaluation.pack.rows import Rows, gather, likeliest, logprobs_of, pack_rows, span_of
from rejoinder.evaluation.pack.stacked import StackedModel, padded_groups, ranked
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.batching import row_length
from rejoinder.trainer.distil import Candidates
from rejoinder.trainer.evidence import rise

_WIDE = 16_384
"""Padded ids of hinted prompts and answers that a frozen teacher reads at one time."""


class PackedTeachers:
    """The teacher of each seat."""

    def __init__(
        self,
        model: StackedModel,
        start: StackedModel,
        compared: Sequence[Candidates],
        keeps: Mapping[int, float],
        budget: int,
    ) -> None:
        """Begin at the weights as they are.

        Args:
            model: the weights in training.
            start: the start weights in one seat.
            compared: of each seat, which tokens its loss compares.
            keeps: of seats whose teacher follows the policy, the share of its weights that a step
                keeps; with 0 it is the policy itself. The others have a frozen one.
            budget: most padded ids of a seat that such teachers read at one time.
        """
        self._start = start
        self._compared = compared
        self._keeps = keeps
        self._budget = budget
        self._top = max(one.count for one in compared)
        self._moving = PackedAverage(model, keeps)

    def follow(self, seats: Sequence[int]) -> None:
        """Move the teachers of seats whose weights a step has changed."""
        self._moving.follow(seats)

    @torch.no_grad()
    def score(self, batch: Rows, compared: Tensor) -> dict[int, Tensor]:
        """Return, of each seat with hints, [M, K] of ``compared`` [S, M, K] under its teacher.

        Where a seat compares the teacher's most likely ids, those take the place of the student's.
        Rows of turns without a hint hold zeros.
        """
        asked = [
            (seat, row, _under_hint(turn))
            for seat, own in enumerate(batch.turns)
            for row, turn in enumerate(own)
            if turn.teacher_prompts
        ]
        found: dict[int, Tensor] = {}
        frozen = [one for one in asked if one[0] not in self._keeps]
        for group in padded_groups([row_length(turn) for *_, turn in frozen], _WIDE):
            members = [frozen[index] for index in group]
            self._read(self._start, [members], batch, compared, found)
        own: list[list[tuple[int, int, SignalledTurn]]] = [[] for _ in batch.turns]
        for one in asked:
            if one[0] in self._keeps:
                own[one[0]].append(one)
        if any(own):
            self._read(self._moving.model, own, batch, compared, found)
        return found

    @torch.no_grad()
    def rises(self, turns: Mapping[int, Sequence[SignalledTurn]]) -> dict[int, list[float]]:
        """Return ``evidence.rise`` of some seats' turns, whose prompts have the hint in them."""
        places = [(seat, row) for seat, own in turns.items() for row in range(len(own))]
        frozen = [one for one in places if one[0] not in self._keeps]
        moving = [one for one in places if one[0] in self._keeps]
        found = {seat: [0.0] * len(own) for seat, own in turns.items()}
        lengths = [row_length(turns[seat][row]) for seat, row in frozen]
        for group in padded_groups(lengths, _WIDE):
            self._rises(self._start, [[frozen[index] for index in group]], turns, found)
        stack = self._moving.model
        whose = [[one for one in moving if one[0] == seat] for seat in range(stack.seats)]
        for batch in ranked(whose, lambda one: row_length(turns[one[0]][one[1]]), self._budget):
            self._rises(stack, batch, turns, found)
        return found

    def _rises(
        self,
        teacher: StackedModel,
        asked: list[list[tuple[int, int]]],
        turns: Mapping[int, Sequence[SignalledTurn]],
        found: dict[int, list[float]],
    ) -> None:
        """Read turns at each seat of a stack, and note how far it raises each."""
        rows = [[turns[seat][row] for seat, row in own] for own in asked]
        packed = pack_rows(rows, teacher.device)
        hidden = gather(teacher.hidden(packed.ids, packed.mask), packed.places)
        ids = packed.targets[..., None]
        said = logprobs_of(hidden, teacher.head, ids, packed.temperature)[..., 0].tolist()
        for own, turns_of_seat, values in zip(asked, rows, said, strict=True):
            for place, (seat, row) in enumerate(own):
                span = span_of(turns_of_seat, place)
                found[seat][row] = rise(turns_of_seat[place], values[span])

    def _read(
        self,
        teacher: StackedModel,
        asked: list[list[tuple[int, int, SignalledTurn]]],
        batch: Rows,
        compared: Tensor,
        found: dict[int, Tensor],
    ) -> None:
        """Read (seat, row, hinted turn) at each seat of a stack, and note what it says."""
        packed = pack_rows([[turn for *_, turn in own] for own in asked], compared.device)
        hidden = gather(teacher.hidden(packed.ids, packed.mask), packed.places)
        ids = likeliest(hidden, teacher.head, self._top)
        spans: list[tuple[int, slice, tuple[int, slice]]] = []
        for place, own in enumerate(asked):
            first = 0
            for seat, row, _ in own:
                span = span_of(batch.turns[seat], row)
                end = first + span.stop - span.start
                spans.append((seat, span, (place, slice(first, end))))
                first = end
        for seat, span, here in spans:
            if self._compared[seat].whose == "teacher":
                compared[seat, span] = ids[here]
            ids[here] = compared[seat, span]
        said = logprobs_of(hidden, teacher.head, ids, packed.temperature)
        for seat, span, here in spans:
            whole = found.setdefault(seat, torch.zeros(compared.shape[1:], device=said.device))
            whole[span] = said[here]


def _under_hint(turn: SignalledTurn) -> SignalledTurn:
    """Return a turn with its hint in the prompt."""
    return replace(turn, prompt_ids=turn.teacher_prompts[0])
