"""Figures of one optimizer step, gathered over its micro-batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from rejoinder.trainer.batching import MicroBatch
from rejoinder.trainer.losses import LossMetrics


@dataclass(slots=True)
class StepTotals:
    """Figures of the micro-batches of one step."""

    means: dict[str, float] = field(default_factory=dict)
    maxima: dict[str, float] = field(default_factory=dict)
    tokens: int = 0
    packed_tokens: int = 0
    micro_batches: int = 0
    differences: float = 0.0
    """Sum of |l - l_mu| over tokens of the newest version, l being that of its own weights (rule
    8)."""
    largest_difference: float = 0.0
    compared: int = 0

    def add(self, metrics: LossMetrics, batch: MicroBatch) -> None:
        """Take in one micro-batch."""
        for name, value in metrics.means.items():
            self.means[name] = self.means.get(name, 0.0) + float(value)
        for name, value in metrics.maxima.items():
            self.maxima[name] = max(self.maxima.get(name, -math.inf), float(value))
        self.tokens += len(batch.targets)
        self.packed_tokens += batch.tokens
        self.micro_batches += 1

    def compare(self, logprobs: Tensor, batch: MicroBatch) -> None:
        """Note how far log-probabilities [M] are from the engine's, where weights are the same."""
        differences = (logprobs - batch.behaviour).abs()[batch.is_current]
        if differences.numel():
            self.differences += float(differences.sum())
            self.largest_difference = max(self.largest_difference, float(differences.max()))
            self.compared += differences.numel()

    def figures(self) -> dict[str, float]:
        """Return the step's figures."""
        figures = {**self.means, **self.maxima}
        figures["tokens"] = self.tokens
        figures["packed_tokens"] = self.packed_tokens
        figures["micro_batches"] = self.micro_batches
        figures["logprob_difference_tokens"] = self.compared
        if self.compared:
            figures["logprob_difference_mean"] = self.differences / self.compared
            figures["logprob_difference_max"] = self.largest_difference
        return figures
