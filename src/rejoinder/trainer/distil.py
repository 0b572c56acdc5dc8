"""Distillation losses: the student is moved towards a teacher that has read a hint.

Shapes: N tokens that learn, K tokens of the vocabulary at each. A token without a hint has weight
exactly zero here. Formulas and their sources stand in ``docs/reference/algorithms.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from rejoinder.config import DistilConfig, LossConfig
from rejoinder.trainer.losses import (
    MAX_LOG_RATIO,
    Hinted,
    Loss,
    LossInputs,
    LossMetrics,
    policy_loss,
)

Whose: TypeAlias = Literal["sampled", "student", "teacher"]
_LARGEST_SUM = -1e-7
"""Of log-probabilities: what is left for all other tokens must be above zero."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Which tokens a loss compares: the sampled one, or someone's most likely ones."""

    whose: Whose
    count: int = 1


@dataclass(frozen=True, slots=True)
class TeachingLoss:
    """A ``Loss`` that compares with a teacher, and says of which tokens the teacher is asked.

    Called, it finds them in ``LossInputs.hinted``, in the order of ``Candidates``.
    """

    loss: Loss
    candidates: Callable[[LossConfig], Candidates]

    def __call__(self, inputs: LossInputs, config: LossConfig) -> tuple[Tensor, LossMetrics]:
        """Compute the loss."""
        return self.loss(inputs, config)


def candidates(config: LossConfig) -> Candidates:
    """Return which tokens the configured distillation needs."""
    return _candidates(config.distil)


def _candidates(config: DistilConfig) -> Candidates:
    match config.kind:
        case "token":
            return Candidates("sampled")
        case "topk":
            return Candidates("student", config.top or 4)
        case "tail":
            return Candidates("teacher", config.top or 50)
        case "jsd":
            # KL(teacher || student) is weighted by the teacher's probabilities, and what a student
            # has to learn, such as to end an answer, is often none of its own likely tokens.
            whose: Whose = "teacher" if config.alpha == 0.0 else "student"
            return Candidates(whose, config.top or 100)


def distil_token(inputs: LossInputs, config: LossConfig) -> tuple[Tensor, LossMetrics]:
    """Add clip(l_T - l_old) of the sampled token to its advantage; the rest is the policy loss."""
    hinted = _hinted(inputs)
    difference = (hinted.teacher - hinted.anchor)[:, 0].detach()
    bound = config.distil.clip or 5.0
    gain = hinted.weights * difference.clamp(-bound, bound)
    loss, metrics = policy_loss(replace(inputs, advantages=inputs.advantages + gain), config)
    _note(metrics, inputs, (difference.abs() > bound)[:, None])
    return loss, metrics


def distil_topk(inputs: LossInputs, config: LossConfig) -> tuple[Tensor, LossMetrics]:
    """Add sum over v of max(-A_v rho_v, -A_v clip(rho_v)) over the student's K likeliest tokens.

    A_v = clip(l_T(v) - l_old(v), -C, C) w_v, with w the softmax of l_old over the K tokens, and
    rho_v = exp(l(v) - l_old(v)).
    """
    hinted = _hinted(inputs)
    bound = config.distil.clip or 1.0
    difference = (hinted.teacher - hinted.anchor).detach()
    gains = difference.clamp(-bound, bound) * hinted.anchor.detach().softmax(-1)
    ratio = (hinted.student - hinted.anchor.detach()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    clipped = ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high)
    terms = torch.maximum(-gains * ratio, -gains * clipped).sum(-1)
    return _beside_policy(inputs, config, terms, difference.abs() > bound)


def distil_tail(inputs: LossInputs, config: LossConfig) -> tuple[Tensor, LossMetrics]:
    """Add KL(student || teacher) over the teacher's K likeliest tokens and the rest as one bin."""
    hinted = _hinted(inputs)
    student, teacher = with_tail(hinted.student), with_tail(hinted.teacher.detach())
    return _beside_policy(inputs, config, _divergence(student, teacher))


def distil_jsd(inputs: LossInputs, config: LossConfig) -> tuple[Tensor, LossMetrics]:
    """Add the generalised Jensen-Shannon divergence over K tokens and the rest as one bin.

    JSD_a = a KL(T || M) + (1 - a) KL(S || M), M = a T + (1 - a) S; the limits are KL(T || S) at 0
    and KL(S || T) at 1, as in generalised knowledge distillation (Agarwal et al. 2024).
    """
    hinted = _hinted(inputs)
    student, teacher = with_tail(hinted.student), with_tail(hinted.teacher.detach())
    alpha = config.distil.alpha
    if alpha == 0.0:
        terms = _divergence(teacher, student)
    elif alpha == 1.0:
        terms = _divergence(student, teacher)
    else:
        mixture = torch.logaddexp(teacher + math.log(alpha), student + math.log1p(-alpha))
        terms = alpha * _divergence(teacher, mixture) + (1 - alpha) * _divergence(student, mixture)
    return _beside_policy(inputs, config, terms)


def with_tail(logprobs: Tensor) -> Tensor:
    """Append what all other tokens have together: [N, K] becomes [N, K + 1]."""
    total = logprobs.logsumexp(-1, keepdim=True).clamp(max=_LARGEST_SUM)
    return torch.cat((logprobs, torch.log(-torch.expm1(total))), dim=-1)


def _divergence(first: Tensor, second: Tensor) -> Tensor:
    """Return KL(first || second) [N] of log-probabilities [N, K]."""
    return (first.exp() * (first - second)).sum(-1)


def _hinted(inputs: LossInputs) -> Hinted:
    if inputs.hinted is None:
        raise ValueError("a distillation loss needs what the teacher says")
    return inputs.hinted


def _beside_policy(
    inputs: LossInputs, config: LossConfig, terms: Tensor, clipped: Tensor | None = None
) -> tuple[Tensor, LossMetrics]:
    """Add the distillation terms [N] to the policy loss, over the same denominator."""
    loss, metrics = policy_loss(inputs, config)
    distilled = (terms * inputs.weights * _hinted(inputs).weights).sum()
    metrics.means["distil_loss"] = distilled.detach()
    metrics.means["loss"] = (loss + distilled).detach()
    _note(metrics, inputs, clipped)
    return loss + distilled, metrics


@torch.no_grad()
def _note(metrics: LossMetrics, inputs: LossInputs, clipped: Tensor | None) -> None:
    hinted = _hinted(inputs)
    has_hint = (hinted.weights != 0).to(inputs.weights.dtype)
    metrics.means["hinted_fraction"] = (has_hint * inputs.weights).sum()
    if clipped is not None:
        share = clipped.to(inputs.weights.dtype).mean(-1)
        metrics.means["distil_clip_fraction"] = (share * has_hint * inputs.weights).sum()
