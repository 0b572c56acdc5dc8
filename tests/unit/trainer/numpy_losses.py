"""The policy loss a second time, in float64 NumPy and without PyTorch, from the formulas alone.

Gradients are central differences, so that nothing is shared with the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rejoinder.config import LossConfig

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tokens:
    """All [N] float64."""

    now: Array
    old: Array
    mu: Array
    ref: Array
    a: Array
    w: Array
    entropy: Array


def clamp(x: Array, low: float, high: float) -> Array:
    return np.minimum(np.maximum(x, low), high)


def ratio(log_ratio: Array) -> Array:
    return np.exp(clamp(log_ratio, -20.0, 20.0))


def policy_terms(t: Tokens, c: LossConfig, old: Array) -> Array:
    """P_t; ``old`` is l_old or, for bypass, l_mu."""
    rho = ratio(t.now - old)
    terms = np.maximum(-t.a * rho, -t.a * clamp(rho, 1 - c.clip_low, 1 + c.clip_high))
    if c.dual_clip is not None:
        terms = np.where(t.a < 0, np.minimum(terms, -t.a * c.dual_clip), terms)
    return terms


def correction(t: Tokens, c: LossConfig) -> Array:
    w = ratio(t.old - t.mu)
    if c.correction in ("tis", "decoupled"):
        return np.minimum(w, c.tis_cap)
    if c.correction == "icepop":
        return np.where((w < c.icepop_low) | (w > c.icepop_high), 0.0, w)
    return np.ones_like(w)


def kl_terms(t: Tokens, c: LossConfig) -> Array:
    d = t.ref - t.now
    terms = {"k1": -d, "k2": d * d / 2, "k3": np.exp(np.minimum(d, 20.0)) - 1 - d}[c.kl_kind]
    terms = np.clip(terms, -10.0, 10.0)
    return terms * ratio(t.now - t.mu) if c.kl_importance else terms


def loss(t: Tokens, c: LossConfig) -> float:
    old = t.mu if c.correction == "bypass" else t.old
    terms = policy_terms(t, c, old) * correction(t, c)
    terms = terms + c.kl_coefficient * kl_terms(t, c) - c.entropy_coefficient * t.entropy
    return float((terms * t.w).sum())


def gradient(t: Tokens, c: LossConfig, step: float = 1e-6) -> Array:
    """d loss / d l_t, by central differences."""
    grad = np.zeros_like(t.now)
    for index in range(len(t.now)):
        high, low = t.now.copy(), t.now.copy()
        high[index] += step
        low[index] -= step
        grad[index] = (loss(replace(t, now=high), c) - loss(replace(t, now=low), c)) / (2 * step)
    return grad
