"""Turns of several seats as tensors, and what a stack of models says at their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rejoinder.evaluation.pack.stacked import left_padded
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.batching import row_length

_CHUNK = 128
"""Positions of a seat whose logits exist at one time."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some turns of each seat: S seats, B rows, T ids, M positions that learn."""

    ids: Tensor
    """[S, B, T]."""
    mask: Tensor
    """[S, B, T]."""
    places: Tensor
    """[S, M] of a seat's B * T ids, those that predict a token that learns; 0 behind the last."""
    targets: Tensor
    """[S, M]."""
    temperature: Tensor
    """[S, M]; 1 behind the last."""
    turns: list[list[SignalledTurn]]
    """Of each seat, in the order of its rows."""


def pack_rows(turns: list[list[SignalledTurn]], device: torch.device) -> Rows:
    """Pack some turns of each seat, at least one in all."""
    seats, rows = len(turns), max(map(len, turns))
    longest = max(row_length(turn) for own in turns for turn in own)
    known: list[list[int]] = []
    places: list[list[int]] = []
    targets: list[list[int]] = []
    temperature: list[list[float]] = []
    for own in turns:
        at, ahead, heat = list[int](), list[int](), list[float]()
        for row, turn in enumerate(own):
            known.append(turn.prompt_ids + turn.answer_ids[:-1])
            first = (row + 1) * longest - len(turn.answer_ids)
            learns = torch.from_numpy(turn.signal.mask).nonzero()[:, 0].tolist()
            at += [first + token for token in learns]
            ahead += [turn.answer_ids[token] for token in learns]
            heat += [turn.temperature] * len(learns)
        known += [[]] * (rows - len(own))
        places.append(at)
        targets.append(ahead)
        temperature.append(heat)
    ids, mask = (one.view(seats, rows, longest) for one in left_padded(known))
    return Rows(
        ids.to(device),
        mask.to(device),
        _padded(places, 0, device),
        _padded(targets, 0, device),
        _padded(temperature, 1.0, device),
        turns,
    )


def span_of(turns: Sequence[SignalledTurn], row: int) -> slice:
    """Return where a turn's learning tokens stand among those of its seat."""
    counts = [int(turn.signal.mask.sum()) for turn in turns[: row + 1]]
    return slice(sum(counts[:-1]), sum(counts))


def _padded(rows: Sequence[Sequence[float]], filler: float, device: torch.device) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows], device=device)


def gather(hidden: Tensor, places: Tensor) -> Tensor:
    """Return [S, M, H] of [S, B, T, H]."""
    flat = hidden.flatten(1, 2)
    return flat.gather(1, places[..., None].expand(-1, -1, flat.shape[-1]))


@torch.no_grad()
def likeliest(hidden: Tensor, head: Tensor, count: int) -> Tensor:
    """Return the most likely ids [S, M, count], whatever the temperature."""
    parts = [
        torch.bmm(part, head.mT).topk(min(count, head.shape[1])).indices
        for part in torch.split(hidden, _CHUNK, 1)
    ]
    return torch.cat(parts, 1)


def logprobs_of(hidden: Tensor, head: Tensor, ids: Tensor, temperature: Tensor) -> Tensor:
    """Return log-probabilities [S, M, K] of ids [S, M, K], never holding all logits."""

    def part(hidden: Tensor, head: Tensor, ids: Tensor, temperature: Tensor) -> Tensor:
        logits = torch.bmm(hidden, head.mT) / temperature[..., None]
        return logits.gather(-1, ids) - logits.logsumexp(-1, keepdim=True)

    pieces = zip(*(torch.split(one, _CHUNK, 1) for one in (hidden, ids, temperature)), strict=True)
    found: list[Tensor] = [
        checkpoint(part, states, head, own, heat, use_reentrant=False)
        for states, own, heat in pieces
    ]
    return torch.cat(found, 1)
