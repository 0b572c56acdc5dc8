"""Log-probabilities of given ids from the logits of one chunk."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rejoinder.engine.torch_engine.sequence import Scoring
from rejoinder.errors import EngineError


def collect(scoring: Scoring, tokens: range, logits: Tensor) -> None:
    """Add a chunk to a scoring.

    Args:
        scoring: collects the results.
        tokens: [M] which tokens the logits belong to; token p gives position p + 1.
        logits: [M, vocabulary], fp32.

    Raises:
        EngineError: the model gave values that are not finite.
    """
    request = scoring.request
    logits = logits / request.temperature
    total = logits.logsumexp(-1, keepdim=True)
    own = request.ids[tokens.start + 1 : tokens.stop + 1]
    found = len(scoring.logprobs)
    if own:
        ids = torch.tensor(own, device=logits.device)[:, None]
        scoring.logprobs += (logits[: len(own)].gather(-1, ids) - total[: len(own)])[:, 0].tolist()
    if not all(map(math.isfinite, scoring.logprobs[found:])) or not bool(total.isfinite().all()):
        raise EngineError(
            f"version {scoring.weights.version if scoring.weights else '?'} gave logits that are "
            "not finite: its weights are broken"
        )
    if request.top_k:
        values, ids = logits.topk(min(request.top_k, logits.shape[-1]), dim=-1)
        scoring.top += [
            list(zip(row_ids, row, strict=True))
            for row_ids, row in zip(ids.tolist(), (values - total).tolist(), strict=True)
        ]
    if request.candidates is not None:
        first = tokens.start + 1 - request.start
        for row, wanted in enumerate(request.candidates[first : first + len(tokens)]):
            picked = logits[row, torch.tensor(wanted, dtype=torch.long, device=logits.device)]
            scoring.candidates.append((picked - total[row]).tolist())
