"""From logits to sampled ids and their behaviour log-probabilities.

The behaviour logprob is that of the distribution the token was drawn from: logits with penalties
and bias, without the ids that a constraint forbids, divided by the temperature, cut by top-k, top-p
and min-p in this order, normalised in fp32. Below temperature 1e-6 the most likely token is taken;
the distribution is then a single point, whose logprob of 0 would say nothing, so the logprob
reported is that at temperature 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rejoinder.engine.base import ClientLogprob
from rejoinder.engine.limits import GREEDY_BELOW
from rejoinder.engine.torch_engine.sequence import Generation
from rejoinder.types import Sampling


@dataclass(frozen=True, slots=True)
class Drawn:
    """One sampled token of each row; ``logprobs`` is NaN or infinite where logits were bad."""

    ids: list[int]
    logprobs: list[float]


def draw(logits: Tensor, rows: Sequence[Generation]) -> Drawn:
    """Sample a token for each row of logits [R, vocabulary] (fp32; may be changed in place).

    The masks of constrained answers have arrived.
    """
    temperatures: list[float] = []
    for row, generation in enumerate(rows):
        sampling = generation.request.sampling
        _penalise(logits[row], sampling, generation.counts)
        if generation.guide is not None:
            logits[row].masked_fill_(generation.guide.forbidden.to(logits.device), float("-inf"))
        greedy = sampling.temperature < GREEDY_BELOW
        temperatures.append(1.0 if greedy else sampling.temperature)
    if any(temperature != 1.0 for temperature in temperatures):
        logits = logits / torch.tensor(temperatures, device=logits.device)[:, None]
    for row, generation in enumerate(rows):
        _truncate(logits[row], generation.request.sampling)
    total = logits.logsumexp(-1, keepdim=True)
    ids = _choose(logits, total, rows)
    chosen = (logits.gather(-1, ids) - total)[:, 0]
    return Drawn(ids[:, 0].tolist(), chosen.tolist())


def _choose(logits: Tensor, total: Tensor, rows: Sequence[Generation]) -> Tensor:
    """Return [R, 1] ids: the most likely ones, or by inversion of the distribution function.

    Each row draws one uniform number per token from its own generator, so that a seed gives the
    same answer in any company; inversion changes only where rounding moves a border.
    """
    greedy = [row.request.sampling.temperature < GREEDY_BELOW for row in rows]
    best = logits.argmax(-1, keepdim=True) if any(greedy) else None
    if best is not None and all(greedy):
        return best
    mass = (logits - total).exp_().cumsum(-1, dtype=torch.float64)
    uniform = torch.tensor([[row.uniform.random()] for row in rows], dtype=torch.float64)
    point = uniform.to(logits.device) * mass[:, -1:]
    ids = torch.searchsorted(mass, point, right=True).clamp_(max=logits.shape[-1] - 1)
    if best is None:
        return ids
    return torch.where(torch.tensor(greedy, device=ids.device)[:, None], best, ids)


def _penalise(logits: Tensor, sampling: Sampling, counts: dict[int, int]) -> None:
    """Apply OpenAI's penalties (over the answer's own tokens) and bias to one row, in place."""
    change = dict(sampling.logit_bias)
    for id_, count in counts.items():
        penalty = sampling.frequency_penalty * count + sampling.presence_penalty
        change[id_] = change.get(id_, 0.0) - penalty
    if change:
        ids = torch.tensor(list(change), device=logits.device)
        logits.index_add_(0, ids, torch.tensor(list(change.values()), device=logits.device))


def _truncate(logits: Tensor, sampling: Sampling) -> None:
    """Cut one row of tempered logits to its kept tokens, in place; the best always stays."""
    if sampling.temperature < GREEDY_BELOW:
        return
    minus_infinity = float("-inf")
    if 0 < sampling.top_k < logits.shape[-1]:
        least = logits.topk(sampling.top_k).values[-1]
        logits.masked_fill_(logits < least, minus_infinity)
    if sampling.top_p < 1.0:
        kept = _nucleus(logits, sampling.top_p)
        values = logits[kept]
        logits.fill_(minus_infinity)[kept] = values
    if sampling.min_p > 0.0:
        least = logits.max() + torch.tensor(sampling.min_p, device=logits.device).log()
        logits.masked_fill_(logits < least, minus_infinity)


def _nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Return the ids of the fewest best tokens whose probabilities sum to at least ``top_p``.

    The best thousand nearly always hold them; only otherwise is the whole row sorted.
    """
    total = logits.logsumexp(-1)
    for count in (min(_USUAL_NUCLEUS, logits.shape[-1]), logits.shape[-1]):
        values, ids = logits.topk(count)
        probabilities = (values - total).exp()
        before = probabilities.cumsum(-1) - probabilities
        if before[-1] >= top_p:
            break
    kept = before < top_p
    kept[0] = True  # the best one also where so small a number is 0 in this precision
    return ids[kept]


_USUAL_NUCLEUS = 1024


def client_logprobs(logits: Tensor, k: int) -> list[tuple[list[int], list[float], Tensor]]:
    """Return, per row of [R, vocabulary], the k best ids, their logprobs, and all logprobs."""
    logprobs = logits.log_softmax(-1)
    values, ids = logprobs.topk(k, dim=-1) if k else (logprobs[:, :0], logprobs[:, :0].long())
    return list(zip(ids.tolist(), values.tolist(), logprobs.unbind(0), strict=True))


def for_client(row: tuple[list[int], list[float], Tensor], id_: int, k: int) -> ClientLogprob:
    """Return what a client that asked for the k best sees of the sampled id."""
    ids, values, logprobs = row
    return ClientLogprob(float(logprobs[id_]), list(zip(ids[:k], values[:k], strict=True)))
