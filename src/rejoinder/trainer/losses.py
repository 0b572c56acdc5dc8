"""Losses: pure functions from ``LossInputs`` to a scalar and its metrics.

Shapes: N tokens that learn, of any number of turns, in any order; prompts, padding and masked
tokens are not among them. Formulas and their sources stand in ``docs/reference/algorithms.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from rejoinder.config import LossConfig
from rejoinder.errors import ConfigError

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to plus or minus this before ``exp``, which stays finite in fp32."""
MAX_KL_TERM = 10.0
"""Bound of one token's KL term, beyond which it has no gradient. That of k3 grows as exp(d): one
token that the policy has unlearnt would outweigh all others of a step, and pull it back."""


@dataclass(frozen=True, slots=True)
class Hinted:
    """What student and teacher say of K tokens at each of N positions, fp32."""

    weights: Tensor
    """[N] what the distillation of each token counts beside the verdict's; 0 without a hint."""
    student: Tensor
    """[N, K] l under the weights in training. Carries the gradient."""
    anchor: Tensor
    """[N, K] l_old: the same at the start of the step."""
    teacher: Tensor
    """[N, K] l_T: under the teacher, with the hint in its prompt; finite also without one."""


@dataclass(frozen=True, slots=True)
class LossInputs:
    """N tokens of one micro-batch. All tensors are fp32 [N] on one device."""

    logprobs: Tensor
    """l: of the sampled ids under the weights in training. Carries the gradient."""
    anchor: Tensor
    """l_old: the same under the weights at the start of the step."""
    behaviour: Tensor | None
    """l_mu: the same under the distribution they were sampled from."""
    advantages: Tensor
    """A_t."""
    weights: Tensor
    """What each token counts in the step's mean; see ``token_weights``. Over all micro-batches
    of a step they sum to 1, so that the losses of the micro-batches simply add up."""
    reference: Tensor | None = None
    """l_ref: under the frozen start weights; needed with a KL coefficient."""
    entropy: Tensor | None = None
    """H_t of the model's distribution; carries a gradient if the coefficient is not 0."""
    hinted: Hinted | None = None
    """What a teacher says that has read the hints; needed by distillation."""


@dataclass(frozen=True, slots=True)
class LossMetrics:
    """Figures of one micro-batch, detached scalars."""

    means: dict[str, Tensor] = field(default_factory=dict)
    """Weighted like the loss: those of a step's micro-batches add up to the step's mean."""
    maxima: dict[str, Tensor] = field(default_factory=dict)
    """Largest values; of several micro-batches the largest counts."""


Loss: TypeAlias = Callable[[LossInputs, LossConfig], tuple[Tensor, LossMetrics]]
"""A loss. A package outside adds one under the entry point group ``rejoinder.losses``."""


def policy_loss(inputs: LossInputs, config: LossConfig) -> tuple[Tensor, LossMetrics]:
    """Clipped policy-gradient loss with behaviour correction, KL and entropy terms.

    L = sum_t weight_t * (c_t * P_t + beta * K_t - eta * H_t), where
    P_t = max(-A_t rho_t, -A_t clip(rho_t, 1 - low, 1 + high)) and rho_t = exp(l - l_old)
    (Schulman et al. 2017; asymmetric clip: Yu et al. 2025, DAPO), for A_t < 0 at most -A_t * dual
    (Ye et al. 2020). The correction c_t multiplies P_t alone and never changes a weight.

    Raises:
        ConfigError: the configuration asks for log-probabilities that ``inputs`` lacks.
    """
    anchor = _behaviour(inputs, config) if config.correction == "bypass" else inputs.anchor
    ratio = _exp(inputs.logprobs - anchor)
    advantages = inputs.advantages
    clipped_ratio = ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high)
    terms = torch.maximum(-advantages * ratio, -advantages * clipped_ratio)
    if config.dual_clip is not None:
        limited = torch.minimum(terms, -advantages * config.dual_clip)
        terms = torch.where(advantages < 0, limited, terms)
    correction = _correction(inputs, config)
    if correction is not None:
        terms = terms * correction
    loss = _mean(terms, inputs)
    metrics = _ratio_metrics(inputs, config, ratio, correction)
    metrics.means["policy_loss"] = loss.detach()
    if config.kl_coefficient:
        divergence = _mean(kl_terms(inputs, config), inputs)
        metrics.means["kl"] = divergence.detach()
        loss = loss + config.kl_coefficient * divergence
    if inputs.entropy is not None:
        entropy = _mean(inputs.entropy, inputs)
        metrics.means["entropy"] = entropy.detach()
        if config.entropy_coefficient:
            loss = loss - config.entropy_coefficient * entropy
    metrics.means["loss"] = loss.detach()
    return loss, metrics


def kl_terms(inputs: LossInputs, config: LossConfig) -> Tensor:
    """Estimate KL(pi || reference) at each token (Schulman 2020, "Approximating KL divergence").

    d = l_ref - l; k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d, each clamped to ``MAX_KL_TERM``. With
    ``kl_importance`` each term is multiplied by exp(l - l_mu) and the gradient goes through both
    factors, which makes k1 and k3 and their gradients unbiased for samples of an older policy
    (DeepSeek-V3.2, section 3), but for the clamp.

    Raises:
        ConfigError: there are no reference or, where needed, behaviour log-probabilities.
    """
    if inputs.reference is None:
        raise ConfigError(
            "trainer.loss.kl_coefficient needs log-probabilities of the start weights"
        )
    d = inputs.reference - inputs.logprobs
    match config.kl_kind:
        case "k1":
            terms = -d
        case "k2":
            terms = d.square() / 2
        case "k3":
            terms = _exp(d) - 1 - d
    terms = terms.clamp(-MAX_KL_TERM, MAX_KL_TERM)
    if config.kl_importance:
        terms = terms * _exp(inputs.logprobs - _behaviour(inputs, config))
    return terms


def _correction(inputs: LossInputs, config: LossConfig) -> Tensor | None:
    """Return the factor for sampling from another distribution than the anchor, or None.

    tis: min(exp(l_old - l_mu), cap) (Yao et al. 2025). icepop: exp(l_old - l_mu), and zero
    outside [low, high] (Ling team 2025). decoupled: AReaL's behaviour weight (Fu et al. 2025),
    min(exp(l_prox - l_mu), cap) with a clip around l_prox; the proximal policy is the anchor
    here, so that it has the value of tis.
    """
    if config.correction in ("none", "bypass"):
        return None
    mismatch = _exp(inputs.anchor - _behaviour(inputs, config)).detach()
    if config.correction == "icepop":
        inside = (mismatch >= config.icepop_low) & (mismatch <= config.icepop_high)
        return torch.where(inside, mismatch, torch.zeros_like(mismatch))
    return mismatch.clamp(max=config.tis_cap)


def _behaviour(inputs: LossInputs, config: LossConfig) -> Tensor:
    if inputs.behaviour is None:
        raise ConfigError(
            f"trainer.loss.correction = {config.correction!r} and trainer.loss.kl_importance = "
            f"{config.kl_importance} need the log-probabilities that answers were sampled with, "
            "and there are none: set them to 'none' and false"
        )
    return inputs.behaviour


def _exp(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def _mean(terms: Tensor, inputs: LossInputs) -> Tensor:
    return (terms * inputs.weights).sum()


@torch.no_grad()
def _ratio_metrics(
    inputs: LossInputs, config: LossConfig, ratio: Tensor, correction: Tensor | None
) -> LossMetrics:
    """Figures of ratios, clips and distance from the behaviour, all by the loss's weights."""
    rises = inputs.advantages > 0
    falls = inputs.advantages < 0
    metrics = LossMetrics()
    shares = {
        "clip_high_fraction": rises & (ratio > 1.0 + config.clip_high),
        "clip_low_fraction": falls & (ratio < 1.0 - config.clip_low),
    }
    if config.dual_clip is not None:
        shares["dual_clip_fraction"] = falls & (ratio > config.dual_clip)
    if correction is not None:
        off = _exp(inputs.anchor - _behaviour(inputs, config))
        shares["corrected_fraction"] = correction != off
        metrics.means["correction_mean"] = _mean(correction, inputs)
    for name, happened in shares.items():
        metrics.means[name] = _mean(happened.to(ratio.dtype), inputs)
    metrics.means["ratio_mean"] = _mean(ratio, inputs)
    if ratio.numel():
        metrics.maxima["ratio_max"] = ratio.max()
    if inputs.behaviour is not None:
        off_policy = inputs.anchor - inputs.behaviour
        metrics.means["off_policy_ratio_mean"] = _mean(_exp(off_policy), inputs)
        # k1 of KL(behaviour || anchor): how far training is from what was sampled.
        metrics.means["off_policy_kl"] = _mean(-off_policy, inputs)
        if ratio.numel():
            metrics.maxima["off_policy_ratio_max"] = _exp(off_policy).max()
    return metrics
