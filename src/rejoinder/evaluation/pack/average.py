"""Running averages of weights in training, of several seats (``trainer/average.py``)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rejoinder.evaluation.pack.stacked import StackedModel, copy_seat


class PackedAverage:
    """The average of each seat's weights, by a share of its own."""

    def __init__(self, trained: StackedModel, *, differs: bool) -> None:
        """Begin at the weights as they are, and follow no seat.

        Args:
            trained: the weights in training.
            differs: whether any run that will sit here keeps a share of its average.
        """
        self._trained = trained
        self._keeps: dict[int, float] = {}
        self.model = trained.twin() if differs else trained
        """The averages as a model to compute with: the trained one itself where none differ."""

    def __contains__(self, seat: int) -> bool:
        """Whether a seat's weights are followed."""
        return seat in self._keeps

    @torch.no_grad()
    def begin(self, seat: int, keeps: float | None) -> None:
        """Begin anew at a seat's weights as they are.

        Args:
            seat: which.
            keeps: share of the average that a step keeps; with 0 it is the newest weights. None:
                the seat is not followed.
        """
        self._keeps.pop(seat, None)
        if keeps is not None:
            self._keeps[seat] = keeps
        if self.model is not self._trained:
            copy_seat(self._trained, seat, self.model, seat)

    @torch.no_grad()
    def follow(self, seats: Sequence[int]) -> None:
        """Move towards the weights of seats that a step has changed."""
        if self.model is self._trained:
            return
        for seat in set(seats) & self._keeps.keys():
            for name, mean in self.model.weights.items():
                mean[seat].lerp_(self._trained.weights[name][seat], 1.0 - self._keeps[seat])
