"""``binary``: every token of an answer gets the verdict, -1 or +1, as its advantage.

A_t = r - b, broadcast over the answer; neutral verdicts make no sample. The baseline b is 0, or the
mean verdict of the step's other samples (leave one out: Kool et al. 2019; Ahmadian et al. 2024). It
does not depend on the sample itself, so it changes the noise of a step and not what it aims at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rejoinder.algorithms.base import Algorithm, TokenSignal
from rejoinder.config import Baseline, TrainerConfig
from rejoinder.journal.base import SampleSpec, TrainSample
from rejoinder.types import Fate, Judgement


class Binary:
    """Implements ``Algorithm``."""

    name = "binary"
    loss = "policy"

    def __init__(self, baseline: Baseline = "none") -> None:
        self._baseline = baseline

    def sample_spec(self, judgement: Judgement) -> SampleSpec | Fate:
        """A clear verdict makes a sample; a neutral one says nothing of any token."""
        if judgement.score is None:
            raise ValueError("a judgement without a score is no verdict and makes no sample")
        if judgement.score not in (-1, 0, 1):
            raise ValueError(f"the score {judgement.score!r} is none of -1, 0, 1")
        if judgement.score == 0:
            return Fate.NEUTRAL
        return SampleSpec(reward=float(judgement.score))

    def signals(self, samples: Sequence[TrainSample]) -> list[TokenSignal | None]:
        """Broadcast each reward over its answer; samples without one have no signal."""
        rewards = [_reward(sample) for sample in samples]
        known = [reward for reward in rewards if reward is not None]
        return [
            None
            if reward is None
            else _broadcast(sample, reward - self._mean_of_others(reward, known))
            for sample, reward in zip(samples, rewards, strict=True)
        ]

    def _mean_of_others(self, reward: float, known: list[float]) -> float:
        if self._baseline == "none" or len(known) < 2:
            return 0.0
        return (sum(known) - reward) / (len(known) - 1)


def _reward(sample: TrainSample) -> float | None:
    return sample.reward if sample.reward and sample.answer_ids else None


def _broadcast(sample: TrainSample, advantage: float) -> TokenSignal:
    tokens = len(sample.answer_ids)
    return TokenSignal(
        advantages=np.full(tokens, advantage, dtype=np.float32),
        mask=np.ones(tokens, dtype=np.bool_),
    )


def build(config: TrainerConfig) -> Algorithm:
    """Build the algorithm."""
    return Binary(config.baseline)
