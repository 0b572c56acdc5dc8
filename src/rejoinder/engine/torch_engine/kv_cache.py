"""Keys and values of all slots: one row per token and layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rejoinder.errors import ConfigError

_GPU_SHARE = 0.3
"""Of the free GPU memory: what the cache takes at most if no context length is configured."""

_LEAST_CONTEXT = 512
"""A smaller one is of no use: asking for this much then fails, and says what to change."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What the cache must hold; models that share a cache agree in all of it but ``slots``."""

    layers: int
    slots: int
    context: int
    """Rows of a slot."""
    kv_heads: int
    head_dim: int


def context_that_fits(shape: CacheShape, dtype: torch.dtype, device: torch.device) -> int:
    """Return the context of ``shape``, or on CUDA what ``_GPU_SHARE`` of the free memory holds.

    The rest is for weights (old, new and start weights may be there together) and a trainer.
    """
    if device.type != "cuda":
        return shape.context
    free, _ = torch.cuda.mem_get_info(device)
    row_bytes = 2 * shape.layers * shape.kv_heads * shape.head_dim * dtype.itemsize
    rows = int(free * _GPU_SHARE) // (row_bytes * shape.slots)
    return min(shape.context, max(rows, _LEAST_CONTEXT))


class KVCache:
    """Per layer two tensors [slots * context, kv_heads, head_dim]; slot s owns rows from s*context.

    On a CPU the memory of a row is taken from the system when it is first written, so that large
    unused slots cost nothing. On CUDA all of it is taken at once.
    """

    def __init__(self, shape: CacheShape, dtype: torch.dtype, device: torch.device) -> None:
        self.shape = shape
        rows = (shape.slots * shape.context, shape.kv_heads, shape.head_dim)
        try:
            self.keys = [torch.empty(rows, dtype=dtype, device=device) for _ in range(shape.layers)]
            self.values = [torch.empty_like(keys) for keys in self.keys]
        except RuntimeError as error:  # also torch.OutOfMemoryError
            raise ConfigError(
                f"no memory for {shape.slots} slots of {shape.context} tokens: lower "
                f"engine.cache_slots or engine.context_length ({error})"
            ) from error
        self._key_heads = [self._by_slot(keys) for keys in self.keys]
        self._value_heads = [self._by_slot(values) for values in self.values]

    def _by_slot(self, rows: Tensor) -> Tensor:
        """View [slots * context, kv_heads, dim] as [slots, kv_heads, context, dim]."""
        return rows.view(self.shape.slots, self.shape.context, *rows.shape[1:]).transpose(1, 2)

    def heads(self, layer: int, slot: int, length: int) -> tuple[Tensor, Tensor]:
        """View a slot's first rows as [1, kv_heads, length, head_dim]; nothing is copied."""
        here = slice(slot, slot + 1), slice(None), slice(length)
        return self._key_heads[layer][here], self._value_heads[layer][here]

    def write(self, layer: int, rows: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [N, kv_heads, head_dim] in ``rows`` [N]."""
        self.keys[layer].index_copy_(0, rows, keys)
        self.values[layer].index_copy_(0, rows, values)

    def copy(self, source: int, target: int, count: int) -> None:
        """Copy the first ``count`` rows of one slot to another."""
        begin, end = source * self.shape.context, target * self.shape.context
        for tensor in (*self.keys, *self.values):
            tensor[end : end + count].copy_(tensor[begin : begin + count])
