"""The running average of the weights in training: a teacher that follows them, or what is served.

After each optimizer step that changed them, with the decay d: mean <- d mean + (1 - d) weights
(Tarvainen and Valpola 2017). Of an adapter the two low-rank tensors are averaged, each by itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rejoinder.trainer.model import TrainModel


class WeightAverage:
    """Holds the average of one model's trained weights, in fp32 as they are."""

    def __init__(self, trained: TrainModel, decay: float) -> None:
        """Begin at the weights as they are now.

        Args:
            trained: the weights to follow; frozen ones below an adapter are shared with it.
            decay: share of the average that an update keeps, above 0 and below 1.
        """
        self._trained = trained
        self._decay = decay
        self.model = trained.twin()
        """The average as a model to compute with."""

    @torch.no_grad()
    def update(self) -> None:
        """Move towards the trained weights; once after each step that changed them."""
        means = self.model.parameters
        for name, weight in self._trained.parameters.items():
            means[name].lerp_(weight, 1.0 - self._decay)

    def state(self) -> dict[str, Tensor]:
        """Return the average by the names of the trained weights."""
        return self.model.master()

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what ``state`` returned.

        Raises:
            ConfigError: it is of another model.
        """
        self.model.load_master(state)
