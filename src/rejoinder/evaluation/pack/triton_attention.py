"""``attend_newest`` of ``attention.py`` as one kernel for CUDA, in fp32 throughout.

Batched products of three queries by some hundred keys leave most of a large device idle, and read
columns that nobody sees yet.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 16
"""Keys that are read at one time; with one warp a program, the fastest of those that were tried."""


def attend_newest(
    queries: Tensor, keys: Tensor, values: Tensor, first: Tensor, last: Tensor
) -> Tensor:
    """See ``attention.py``; the cache is contiguous, and so are the queries of a row."""
    rows, heads, group, width = queries.shape
    found = torch.empty(queries.shape, device=queries.device)
    _attend[(rows * heads,)](
        queries,
        keys,
        values,
        first,
        last,
        found,
        queries.stride(0),
        keys.shape[2],
        width**-0.5,
        heads=heads,
        group=group,
        padded=triton.next_power_of_2(group),
        width=width,
        padded_width=triton.next_power_of_2(width),
        block=_BLOCK,
        num_warps=1,
    )
    return found


@triton.jit(do_not_specialize=["stride", "columns"])
def _attend(
    queries,
    keys,
    values,
    first,
    last,
    found,
    stride,
    columns,
    scale,
    heads: tl.constexpr,
    group: tl.constexpr,
    padded: tl.constexpr,
    width: tl.constexpr,
    padded_width: tl.constexpr,
    block: tl.constexpr,
):
    """One row and one head of keys; softmax as it goes (Milakov and Gimelshein 2018)."""
    place = tl.program_id(0)
    member = tl.arange(0, padded)
    part = tl.arange(0, padded_width)
    row, head = place // heads, place % heads
    own = member[:, None] * width + part[None, :]
    is_own = (member[:, None] < group) & (part[None, :] < width)
    there = queries + row * stride + head * group * width + own
    asked = tl.load(there, mask=is_own, other=0.0) * scale
    begin = tl.load(first + row)
    end = tl.load(last) + 1
    best = tl.full((padded,), -1e30, tl.float32)
    total = tl.zeros((padded,), tl.float32)
    mean = tl.zeros((padded, padded_width), tl.float32)
    cache = place.to(tl.int64) * columns * width
    for start in range(begin, end, block):
        column = start + tl.arange(0, block)
        ahead = cache + column[:, None] * width + part[None, :]
        seen = (column[:, None] < end) & (part[None, :] < width)
        key = tl.load(keys + ahead, mask=seen, other=0.0)
        score = tl.sum(asked[:, None, :] * key[None, :, :], 2)
        score = tl.where(column[None, :] < end, score, -1e30)
        highest = tl.maximum(best, tl.max(score, 1))
        weight = tl.exp(score - highest[:, None])
        kept = tl.exp(best - highest)
        value = tl.load(values + ahead, mask=seen, other=0.0)
        mean = mean * kept[:, None] + tl.sum(weight[:, :, None] * value[None, :, :], 1)
        total = total * kept + tl.sum(weight, 1)
        best = highest
    tl.store(found + place * group * width + own, mean / total[:, None], mask=is_own)
