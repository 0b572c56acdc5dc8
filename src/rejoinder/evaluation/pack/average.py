"""Running averages of weights in training, of several seats (``trainer/average.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from rejoinder.evaluation.pack.stacked import StackedModel


class PackedAverage:
    """The average of each seat's weights, by a share of its own."""

    def __init__(self, trained: StackedModel, keeps: Mapping[int, float]) -> None:
        """Begin at the weights as they are.

        Args:
            trained: the weights in training.
            keeps: of the seats that are followed, the share of the average that a step keeps; with
                0 it is the newest weights.
        """
        self._trained = trained
        self._keeps = keeps
        self.model = trained.twin() if any(keeps.values()) else trained
        """The averages as a model to compute with: the trained one itself where all keep 0."""

    @torch.no_grad()
    def follow(self, seats: Sequence[int]) -> None:
        """Move towards the weights of seats that a step has changed."""
        if self.model is self._trained:
            return
        for seat in set(seats) & set(self._keeps):
            for name, mean in self.model.weights.items():
                mean[seat].lerp_(self._trained.weights[name][seat], 1.0 - self._keeps[seat])
