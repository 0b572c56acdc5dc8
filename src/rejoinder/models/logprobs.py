"""Log-probabilities from hidden states without ever holding tokens x vocabulary logits.

The head's logits exist for one chunk of tokens at a time: in the forward pass to be reduced to a
log-probability and an entropy, in the backward pass to be made again. They are products in fp32,
whatever the number format of hidden states and head: rounded to bfloat16, a logit near 20 is off by
up to 0.06. They are divided by the temperature and normalised in fp32, as the engine does when it
samples.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear


def chunked_logprobs(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: Tensor, chunk: int = 256
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of targets and the entropy of each distribution.

    Both carry gradients to ``hidden`` and ``weight`` where those require one. Several targets of a
    position cost one pass over the vocabulary together.

    Args:
        hidden: [N, H] last hidden states at the positions that predict the targets.
        weight: [V, H] the head's weight, of any number format. Gradients are computed in that of
            ``hidden``.
        targets: [N] or [N, K] ids; an id may stand twice in a row.
        temperature: [N] of each distribution, above 0, fp32.
        chunk: tokens whose logits exist at one time.

    Returns:
        log-probabilities, shaped like ``targets``, and entropies [N] in nats, fp32.
    """
    rows = targets if targets.ndim == 2 else targets[:, None]
    logprobs, entropy = _ChunkedLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden, weight, rows, temperature, chunk
    )
    return logprobs.view(targets.shape), entropy


@torch.no_grad()
def chunked_top(
    hidden: Tensor, weight: Tensor, temperature: Tensor, count: int, chunk: int = 256
) -> Tensor:
    """Return the ids [N, K] of the most likely tokens of each distribution, best first.

    K is ``count``, or the whole vocabulary where that is smaller; see ``chunked_logprobs``.
    """
    count = min(count, len(weight))
    found = torch.empty((len(hidden), count), dtype=torch.long, device=hidden.device)
    with torch.autocast(hidden.device.type, enabled=False):
        head = _for_products(weight, hidden)
        for part in _parts(len(hidden), chunk):
            logits = _logits(hidden[part], head, temperature[part])
            found[part] = logits.topk(count, dim=-1).indices
    return found


class _ChunkedLogprobs(torch.autograd.Function):
    """z = h W^T / temperature; l_k = z_(y_k) - logsumexp(z); H = logsumexp(z) - sum_v p_v z_v.

    dl_k/dz_v = [v = y_k] - p_v, and dH/dz_v = -p_v (log p_v + H).
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        logprobs = torch.empty(targets.shape, dtype=torch.float32, device=hidden.device)
        entropy = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        total = torch.empty_like(entropy)
        with torch.autocast(hidden.device.type, enabled=False):
            head = _for_products(weight, hidden)
            for part in _parts(len(hidden), chunk):
                logits = _logits(hidden[part], head, temperature[part])
                total[part] = logits.logsumexp(-1)
                logprobs[part] = logits.gather(-1, targets[part]) - total[part, None]
                probabilities = (logits - total[part, None]).exp_()
                entropy[part] = total[part] - torch.linalg.vecdot(probabilities, logits)
        ctx.save_for_backward(hidden, weight, targets, temperature, total, entropy)
        ctx.set_materialize_grads(False)
        ctx.chunk = chunk
        return logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, by_logprobs: Tensor | None, by_entropy: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        hidden, weight, targets, temperature, total, entropy = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = (
            torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
            if ctx.needs_input_grad[1]
            else None
        )
        if by_logprobs is None:
            by_logprobs = torch.zeros(targets.shape, dtype=total.dtype, device=total.device)
        back = weight.to(hidden.dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            head = _for_products(weight, hidden)
            for part in _parts(len(hidden), ctx.chunk):
                logits = _logits(hidden[part], head, temperature[part])
                grad = _by_logits(
                    logits.sub_(total[part, None]),
                    targets[part],
                    by_logprobs[part],
                    None if by_entropy is None else (by_entropy[part], entropy[part]),
                )
                grad = grad.div_(temperature[part, None]).to(hidden.dtype)
                if grad_hidden is not None:
                    torch.mm(grad, back, out=grad_hidden[part])
                if grad_weight is not None:
                    _add_product(grad_weight, grad, hidden[part])
        if grad_weight is not None:
            grad_weight = grad_weight.to(weight.dtype)
        return grad_hidden, grad_weight, None, None, None


def _parts(tokens: int, chunk: int) -> list[slice]:
    return [slice(start, start + chunk) for start in range(0, tokens, chunk)]


def _for_products(weight: Tensor, hidden: Tensor) -> Tensor:
    """Return the head as ``_logits`` takes it: a copy in fp32 only where it needs one."""
    return weight if _multiplies_into_fp32(hidden, weight) else weight.float()


def _multiplies_into_fp32(hidden: Tensor, head: Tensor) -> bool:
    """Whether the device multiplies both as they are and adds up in fp32, as fast as ever."""
    return hidden.is_cuda and hidden.dtype == head.dtype == torch.bfloat16


def _logits(hidden: Tensor, head: Tensor, temperature: Tensor) -> Tensor:
    """Return fp32 logits [n, V], divided by each row's temperature."""
    if _multiplies_into_fp32(hidden, head):
        logits = torch.mm(hidden, head.T, out_dtype=torch.float32)
    else:
        logits = linear(hidden.float(), head)
    return logits.div_(temperature[:, None])


def _by_logits(
    logprobs: Tensor, targets: Tensor, by_logprobs: Tensor, entropy: tuple[Tensor, Tensor] | None
) -> Tensor:
    """Return the gradient [n, V] by tempered logits; ``logprobs`` [n, V] is overwritten.

    ``by_logprobs`` [n, K] belongs to ``targets`` [n, K]. ``entropy`` is the gradient by the entropy
    and the entropy itself, where that has a gradient.
    """
    by_all = by_logprobs.sum(-1, keepdim=True)
    if entropy is None:
        grad = logprobs.exp_().mul_(-by_all)
    else:
        by_entropy, value = entropy
        probabilities = logprobs.exp()
        grad = logprobs.add_(value[:, None]).mul_(by_entropy[:, None]).add_(by_all)
        grad.mul_(probabilities).neg_()
    return grad.scatter_add_(-1, targets, by_logprobs)


def _add_product(total: Tensor, grad: Tensor, hidden: Tensor) -> None:
    """Add ``grad^T hidden`` [V, H] to ``total`` in fp32."""
    if grad.dtype == torch.float32:
        total.addmm_(grad.T, hidden)
    else:
        total += grad.T @ hidden
