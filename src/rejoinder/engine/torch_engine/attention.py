"""Attention of new tokens to the rows of their slots."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rejoinder.engine.torch_engine.batch import Batch, Span
from rejoinder.engine.torch_engine.kv_cache import KVCache

Attend = Callable[[int, Tensor, Tensor, Tensor, float], Tensor]
"""What a forward pass calls in each layer: see ``StepAttention.__call__``."""


class StepAttention:
    """Writes a step's keys and values into the cache and attends, layer by layer.

    Grouped-query attention is folded into the query length: the ``G`` query heads that share a
    key head are ``G`` queries of that head, so that keys are never repeated. Decoding rows are
    attended one by one (``batched=False``: slots are read in place, best on a CPU) or gathered
    and masked in one call (``batched=True``: few kernel launches, best on a GPU).
    """

    def __init__(self, cache: KVCache, batch: Batch, *, batched: bool) -> None:
        self._cache = cache
        self._rows = batch.rows
        decoding = sum(len(span.ids) == 1 for span in batch.spans)
        self._together = batch.spans[:decoding] if batched else []
        self._apart = batch.spans[len(self._together) :]
        self._sizes = [len(span.ids) for span in self._apart]
        self._gather = _Gather(self._together, cache) if self._together else None
        self._masks: list[Tensor | None] = []

    def __call__(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> Tensor:
        """Attend.

        Args:
            layer: index of the layer.
            queries: [N, heads, head_dim], rotated.
            keys: [N, kv_heads, head_dim], rotated.
            values: [N, kv_heads, head_dim].
            scale: factor of the scores.

        Returns:
            [N, heads * head_dim]
        """
        self._cache.write(layer, self._rows, keys, values)
        count, heads, dim = queries.shape
        kv_heads = keys.shape[1]
        grouped = queries.view(count, kv_heads, heads // kv_heads, dim)
        parts: list[Tensor] = []
        together = len(self._together)
        if self._gather is not None:
            parts.append(self._gather.attend(layer, grouped[:together], scale))
        if self._apart:
            self._make_masks(grouped)
            queries_of = torch.split(grouped[together:], self._sizes)
            for span, mask, q in zip(self._apart, self._masks, queries_of, strict=True):
                k, v = self._cache.heads(layer, span.slot, span.end)
                parts.append(_attend_span(q, k, v, mask, scale))
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        return out.reshape(count, heads * dim)

    def _make_masks(self, grouped: Tensor) -> None:
        """Build the causal masks once a step: they are the same in all layers."""
        if not self._masks:
            self._masks = [
                None if len(span.ids) == 1 else _causal_mask(span, grouped) for span in self._apart
            ]


def _causal_mask(span: Span, grouped: Tensor) -> Tensor:
    """Return [group * n, end]: which rows of the slot each new token may see."""
    groups, device = grouped.shape[2], grouped.device
    rows = torch.arange(span.end, device=device)
    visible = rows[None, :] <= torch.arange(span.begin, span.end, device=device)[:, None]
    mask = torch.zeros(visible.shape, dtype=grouped.dtype, device=device)
    return mask.masked_fill_(~visible, float("-inf")).repeat(groups, 1)


def _attend_span(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Attend n tokens of one sequence, q [n, kv_heads, group, dim], to its rows; same shape."""
    if mask is None:
        return scaled_dot_product_attention(q, k, v, scale=scale)
    n, kv_heads, groups, dim = q.shape
    folded = q.permute(1, 2, 0, 3).reshape(1, kv_heads, groups * n, dim)
    out = scaled_dot_product_attention(folded, k, v, attn_mask=mask, scale=scale)
    return out.view(kv_heads, groups, n, dim).permute(2, 0, 1, 3)


class _Gather:
    """Rows of several slots brought side by side, with a mask where slots are shorter."""

    def __init__(self, spans: list[Span], cache: KVCache) -> None:
        self._cache = cache
        device, dtype = cache.keys[0].device, cache.keys[0].dtype
        ends = torch.tensor([span.end for span in spans])
        first = torch.tensor([span.slot * cache.shape.context for span in spans])
        positions = torch.arange(int(ends.max()))[None, :]
        # Beyond its end a row repeats the last one: unwritten memory may hold NaN, and NaN
        # survives a mask.
        self._index = (first[:, None] + torch.minimum(positions, ends[:, None] - 1)).to(device)
        beyond = (positions >= ends[:, None]).to(device)
        mask = torch.zeros(beyond.shape, dtype=dtype, device=device)
        self._mask = mask.masked_fill_(beyond, float("-inf"))[:, None, None, :]

    def attend(self, layer: int, q: Tensor, scale: float) -> Tensor:
        """Attend q [B, kv_heads, group, dim] to the rows of B slots; same shape."""
        keys = self._cache.keys[layer][self._index].transpose(1, 2)
        values = self._cache.values[layer][self._index].transpose(1, 2)
        mask = self._mask.expand(-1, q.shape[1], q.shape[2], -1)
        return scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=scale)
