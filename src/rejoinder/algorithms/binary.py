"""``binary``: every token of an answer gets the verdict, -1 or +1, as its advantage.

A_t = r, broadcast over the answer; neutral verdicts make no sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rejoinder.algorithms.base import Algorithm, TokenSignal
from rejoinder.config import TrainerConfig
from rejoinder.journal.base import SampleSpec, TrainSample
from rejoinder.types import Fate, Judgement


class Binary:
    """Implements ``Algorithm``."""

    name = "binary"
    loss = "policy"

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
        return [_broadcast(sample) for sample in samples]


def _broadcast(sample: TrainSample) -> TokenSignal | None:
    if not sample.reward or not sample.answer_ids:
        return None
    tokens = len(sample.answer_ids)
    return TokenSignal(
        advantages=np.full(tokens, sample.reward, dtype=np.float32),
        mask=np.ones(tokens, dtype=np.bool_),
    )


def build(config: TrainerConfig) -> Algorithm:  # noqa: ARG001 - binary has no settings
    """Build the algorithm."""
    return Binary()
