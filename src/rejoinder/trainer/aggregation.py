"""What each token counts in the mean of a step: one denominator for every term of the loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeAlias

Aggregation: TypeAlias = Literal["turn_mean", "token_mean", "trajectory_mean"]


def token_weights(
    tokens: Sequence[int], trajectories: Sequence[str | None], aggregation: Aggregation
) -> list[float]:
    """Return, for each turn of a step, the weight of one of its tokens.

    Weight times tokens, summed over all turns, is 1. They follow from the masks of the whole
    step alone: micro-batches, packing, correction weights and clips cannot change them.

    * ``turn_mean``: mean over a turn's tokens, then over turns: 1 / (turns * T).
    * ``token_mean``: mean over all tokens: 1 / sum of T.
    * ``trajectory_mean``: mean over a trajectory's tokens, then over trajectories. A turn
      outside any trajectory is one of its own.

    Args:
        tokens: tokens with a signal of each turn (the sum of its mask); turns with 0 count nowhere
            and get weight 0.
        trajectories: each turn's trajectory.
        aggregation: the mode.
    """
    if aggregation == "token_mean":
        total = sum(tokens)
        return [1.0 / total if count else 0.0 for count in tokens]
    if aggregation == "turn_mean":
        groups: list[object] = list(range(len(tokens)))
    else:
        groups = [index if name is None else name for index, name in enumerate(trajectories)]
    sizes: Counter[object] = Counter()
    for group, count in zip(groups, tokens, strict=True):
        if count:
            sizes[group] += count
    return [
        1.0 / (len(sizes) * sizes[group]) if count else 0.0
        for group, count in zip(groups, tokens, strict=True)
    ]
