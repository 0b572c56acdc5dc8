"""Verdicts as advantages of every token of an answer, with or without a baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rejoinder.algorithms.base import TokenSignal
from rejoinder.config import Baseline
from rejoinder.journal.records import TrainSample
from rejoinder.types import Judgement


def clear_score(judgement: Judgement) -> float | None:
    """Return the reward of a clear verdict, None for a neutral one or none at all.

    Raises:
        ValueError: the score is none of -1, 0, 1.
    """
    if judgement.score not in (-1, 0, 1, None):
        raise ValueError(f"the score {judgement.score!r} is none of -1, 0, 1")
    return float(judgement.score) if judgement.score else None


def advantages(samples: Sequence[TrainSample], baseline: Baseline) -> list[float | None]:
    """Return A = r - b of each sample, None where there is no reward or no token.

    A = 0 means that all the step's verdicts are the same, and say nothing beside each other.

    The baseline b is 0, or the mean reward of the step's other samples (leave one out: Kool et al.
    2019; Ahmadian et al. 2024). It does not depend on the sample itself, so it changes the noise of
    a step and not what it aims at. A sample that is alone has b = 0.
    """
    rewards = [one.reward if one.reward and one.answer_ids else None for one in samples]
    known = [reward for reward in rewards if reward is not None]
    if baseline == "none" or len(known) < 2:
        return rewards
    return [
        None if reward is None else reward - (sum(known) - reward) / (len(known) - 1)
        for reward in rewards
    ]


def over_answer(sample: TrainSample, advantage: float, hint_weight: float = 0.0) -> TokenSignal:
    """Return a signal of [T] tokens that all learn and have the same advantage."""
    tokens = len(sample.answer_ids)
    return TokenSignal(
        advantages=np.full(tokens, advantage, dtype=np.float32),
        mask=np.ones(tokens, dtype=np.bool_),
        hint_weight=hint_weight,
    )
