"""The distillation losses a second time, in float64 NumPy and without PyTorch, from the formulas.

Rows are [N, K]; gradients are central differences, so that nothing is shared with the code under
test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rejoinder.config import LossConfig

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """What student and teacher say of K tokens at N positions."""

    student: Array
    old: Array
    teacher: Array
    weights: Array
    """[N] token weight times hint weight."""


def topk(rows: Rows, c: LossConfig) -> Array:
    bound = 1.0 if c.distil.clip is None else c.distil.clip
    share = np.exp(rows.old) / np.exp(rows.old).sum(-1, keepdims=True)
    gain = np.minimum(np.maximum(rows.teacher - rows.old, -bound), bound) * share
    rho = np.exp(rows.student - rows.old)
    limited = np.minimum(np.maximum(rho, 1 - c.clip_low), 1 + c.clip_high)
    return np.maximum(-gain * rho, -gain * limited).sum(-1)


def bins(logprobs: Array) -> Array:
    """Probabilities of the K tokens and of all others together."""
    own = np.exp(logprobs)
    rest = np.maximum(1.0 - own.sum(-1, keepdims=True), -np.expm1(-1e-7))
    return np.concatenate((own, rest), axis=-1)


def tail(rows: Rows, c: LossConfig) -> Array:
    s, t = bins(rows.student), bins(rows.teacher)
    return (s * np.log(s / t)).sum(-1)


def jsd(rows: Rows, c: LossConfig) -> Array:
    s, t, alpha = bins(rows.student), bins(rows.teacher), c.distil.alpha
    if alpha == 0.0:
        return (t * np.log(t / s)).sum(-1)
    if alpha == 1.0:
        return (s * np.log(s / t)).sum(-1)
    mixed = alpha * t + (1 - alpha) * s
    return alpha * (t * np.log(t / mixed)).sum(-1) + (1 - alpha) * (s * np.log(s / mixed)).sum(-1)


FORMULAS: dict[str, Callable[[Rows, LossConfig], Array]] = {"topk": topk, "tail": tail, "jsd": jsd}


def loss(rows: Rows, c: LossConfig) -> float:
    return float((FORMULAS[c.distil.kind](rows, c) * rows.weights).sum())


def gradient(rows: Rows, c: LossConfig, step: float = 1e-6) -> Array:
    """d loss / d student [N, K], by central differences."""
    grad = np.zeros_like(rows.student)
    for place in np.ndindex(*rows.student.shape):
        high, low = rows.student.copy(), rows.student.copy()
        high[place] += step
        low[place] -= step
        above, below = loss(replace(rows, student=high), c), loss(replace(rows, student=low), c)
        grad[place] = (above - below) / (2 * step)
    return grad
