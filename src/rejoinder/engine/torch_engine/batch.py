"""One forward pass: tokens of many sequences side by side, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Span:
    """Successive new tokens of one sequence."""

    slot: int
    begin: int
    """Position of the first one; as many rows of the slot are filled."""
    ids: Sequence[int]

    @property
    def end(self) -> int:
        """Rows filled afterwards."""
        return self.begin + len(self.ids)


@dataclass(frozen=True, slots=True)
class Batch:
    """N new tokens, those of spans with one token first."""

    spans: list[Span]
    ids: Tensor
    """[N]"""
    positions: Tensor
    """[N]"""
    rows: Tensor
    """[N] cache rows that will hold their keys and values."""
    keep: Tensor
    """[M] which of the N tokens need logits."""


def make_batch(spans: list[Span], keep: list[int], context: int, device: torch.device) -> Batch:
    """Lay out spans one after the other; ``context`` is the number of rows of a slot."""
    ids: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    for span in spans:
        ids += span.ids
        positions += range(span.begin, span.end)
        rows += range(span.slot * context + span.begin, span.slot * context + span.end)
    packed = torch.tensor([ids, positions, rows]).to(device)
    return Batch(
        spans, packed[0], packed[1], packed[2], torch.tensor(keep, dtype=torch.long).to(device)
    )
