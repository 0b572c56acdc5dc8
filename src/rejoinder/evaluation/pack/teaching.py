"""What teachers say of the answers of several seats, once they have read the hints.

As the trainer's teacher does (``trainer/teacher.py``), with weights stacked: frozen teachers are
one and the same model, those that follow their policy are a stack of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rejoinder.evaluation.pack.average import PackedAverage
from rejoinder.evaluation.pack.rows import Rows, gather, likeliest, logprobs_of, pack_rows, span_of
from rejoinder.evaluation.pack.stacked import StackedModel, padded_groups
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.batching import row_length
from rejoinder.trainer.distil import Candidates

_WIDE = 16_384
"""Padded ids of hinted prompts and answers that a frozen teacher reads at one time."""


class PackedTeachers:
    """The teacher of each seat."""

    def __init__(
        self, model: StackedModel, start: StackedModel, top: int, *, differs: bool
    ) -> None:
        """Begin with no teacher.

        Args:
            model: the weights in training.
            start: the start weights in one seat.
            top: tokens of each place that are compared at any seat, at the most.
            differs: whether the teacher of any run that will sit here keeps weights of its own.
        """
        self._start = start
        self._top = top
        self._compared: dict[int, Candidates] = {}
        self._moving = PackedAverage(model, differs=differs)

    def begin(self, seat: int, compared: Candidates, keeps: float | None) -> None:
        """Teach a seat by another teacher, which begins at its weights as they are.

        Args:
            seat: which.
            compared: which tokens its loss compares.
            keeps: the share of the teacher's weights that a step keeps; with 0 it is the policy
                itself. None: it is frozen.
        """
        self._compared[seat] = compared
        self._moving.begin(seat, keeps)

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
        frozen = [one for one in asked if one[0] not in self._moving]
        for group in padded_groups([row_length(turn) for *_, turn in frozen], _WIDE):
            members = [frozen[index] for index in group]
            self._read(self._start, [members], batch, compared, found)
        own: list[list[tuple[int, int, SignalledTurn]]] = [[] for _ in batch.turns]
        for one in asked:
            if one[0] in self._moving:
                own[one[0]].append(one)
        if any(own):
            self._read(self._moving.model, own, batch, compared, found)
        return found

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
