"""Attention of the newest ids over a cache of keys and values."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeAlias

import torch
from torch import Tensor

NewestAttention: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def newest_attention(device: torch.device) -> NewestAttention:
    """Return what computes ``attend_newest`` fastest."""
    # Triton comes with PyTorch for CUDA, though not on every system.
    if device.type != "cuda" or find_spec("triton") is None:
        return attend_newest
    from rejoinder.evaluation.pack import triton_attention

    return triton_attention.attend_newest


def attend_newest(
    queries: Tensor, keys: Tensor, values: Tensor, first: Tensor, last: Tensor
) -> Tensor:
    """Return what the newest id of each row attends to, [N, heads, group, D].

    Args:
        queries: [N, heads, group, D]; those of a group share keys and values.
        keys: [N, heads, T, D] the cache.
        values: [N, heads, T, D].
        first: [N] the first column that a row sees.
        last: [1] the last one that all see, their own.
    """
    column = torch.arange(keys.shape[2], device=keys.device)
    unseen = (column < first[:, None]) | (column > last)
    scores = queries @ keys.mT * math.sqrt(1 / queries.shape[-1])
    return scores.masked_fill(unseen[:, None, None], -math.inf).softmax(-1) @ values
