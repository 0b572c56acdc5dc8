"""Attention over slots: the gathered path of GPUs equals the in-place path of CPUs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rejoinder.engine.torch_engine.attention import StepAttention
from rejoinder.engine.torch_engine.batch import Span, make_batch
from rejoinder.engine.torch_engine.kv_cache import CacheShape, KVCache

CPU = torch.device("cpu")
SHAPE = CacheShape(layers=1, slots=5, context=32, kv_heads=2, head_dim=8)
HEADS = 6


def _cache() -> KVCache:
    cache = KVCache(SHAPE, torch.float32, CPU)
    for tensor in (*cache.keys, *cache.values):
        tensor.fill_(float("nan"))  # what unwritten memory may hold
    return cache


def _naive(q: Tensor, k: Tensor, v: Tensor, first: int) -> Tensor:
    """Attend q [n, heads, dim] at positions first.. to k, v [rows, kv_heads, dim], one by one."""
    out = torch.empty_like(q)
    for token in range(q.shape[0]):
        for head in range(HEADS):
            kv_head = head // (HEADS // SHAPE.kv_heads)
            seen = first + token + 1
            scores = k[:seen, kv_head] @ q[token, head] * SHAPE.head_dim**-0.5
            out[token, head] = scores.softmax(0) @ v[:seen, kv_head]
    return out


@pytest.mark.parametrize("batched", [False, True])
def test_new_tokens_see_exactly_the_earlier_rows_of_their_own_slot(batched: bool):
    torch.manual_seed(0)
    cache = _cache()
    history = {0: 5, 2: 31, 3: 0, 4: 7}
    new = {0: 1, 2: 1, 3: 9, 4: 4}
    size = max(history[slot] + new[slot] for slot in history)
    keys, values = (torch.randn(5, size, SHAPE.kv_heads, SHAPE.head_dim) for _ in range(2))
    for slot, length in history.items():
        rows = torch.arange(length) + slot * SHAPE.context
        cache.write(0, rows, keys[slot, :length], values[slot, :length])
    spans = [Span(slot, history[slot], [1] * new[slot]) for slot in history]
    batch = make_batch(spans, [0], SHAPE.context, CPU)
    queries = torch.randn(sum(new.values()), HEADS, SHAPE.head_dim)

    def fresh(tensor: Tensor) -> Tensor:
        return torch.cat([tensor[span.slot, span.begin : span.end] for span in spans])

    attend = StepAttention(cache, batch, batched=batched)
    out = attend(0, queries, fresh(keys), fresh(values), SHAPE.head_dim**-0.5)
    offset = 0
    for span in spans:
        n = len(span.ids)
        expected = _naive(
            queries[offset : offset + n], keys[span.slot], values[span.slot], span.begin
        )
        assert torch.allclose(out[offset : offset + n], expected.flatten(1), atol=1e-5)
        offset += n


def test_copied_rows_are_those_of_the_source_and_no_more():
    cache = _cache()
    rows = torch.randn(4, SHAPE.kv_heads, SHAPE.head_dim)
    cache.write(0, torch.arange(4) + SHAPE.context, rows, rows * 2)
    cache.copy(1, 3, 3)
    keys, values = cache.heads(0, 3, 4)
    assert torch.equal(keys[0, :, :3], rows[:3].transpose(0, 1))
    assert torch.equal(values[0, :, :3], 2 * rows[:3].transpose(0, 1))
    assert keys[0, :, 3].isnan().all()
