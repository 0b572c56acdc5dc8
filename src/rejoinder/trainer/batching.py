"""From turns to micro-batches: packed rows without padding, and where their answers stand.

The last id of an answer predicts nothing that is trained, so it is not computed at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rejoinder.models.packed_attention import Segments
from rejoinder.trainer.base import SignalledTurn


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Turns packed into one row of N ids, of which M positions predict a token that learns."""

    ids: Tensor
    """[1, N] int64."""
    segments: Segments
    predict: Tensor
    """[M] positions in the row; the token behind each is its target."""
    targets: Tensor
    """[M] ids."""
    temperature: Tensor
    """[M] fp32, of the turn."""
    advantages: Tensor
    """[M] fp32."""
    behaviour: Tensor
    """[M] fp32."""
    weights: Tensor
    """[M] fp32; over all micro-batches of a step they sum to 1."""
    hint_weights: Tensor
    """[M] fp32; see ``TokenSignal.hint_weight``."""
    is_current: Tensor
    """[M] bool; see ``SignalledTurn.is_current``."""

    @property
    def tokens(self) -> int:
        """N."""
        return self.ids.shape[1]


def row_length(turn: SignalledTurn) -> int:
    """Return the ids that a turn takes in a packed row."""
    return len(turn.prompt_ids) + len(turn.answer_ids) - 1


def plan(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group rows so that few groups are needed and none but single rows exceed the budget.

    First-fit decreasing; within a group rows are in order of length, longest first. The result
    follows from the multiset of lengths and the order of equal ones.

    Args:
        lengths: ids of each row.
        budget: most ids of a group; a longer row stands alone.

    Returns:
        groups of indices into ``lengths``.
    """
    groups: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        length = lengths[index]
        place = next((number for number, free in enumerate(room) if length <= free), None)
        if place is None:
            groups.append([index])
            room.append(budget - length)
        else:
            groups[place].append(index)
            room[place] -= length
    return groups


def pack(turns: Sequence[SignalledTurn], device: torch.device) -> MicroBatch:
    """Pack turns into one row, in the given order."""
    ids: list[int] = []
    predict: list[Tensor] = []
    targets: list[Tensor] = []
    counts: list[int] = []
    parts: dict[str, list[Tensor]] = {"advantages": [], "behaviour": []}
    for turn in turns:
        learns = torch.from_numpy(turn.signal.mask).nonzero()[:, 0]
        predict.append(learns + len(ids) + len(turn.prompt_ids) - 1)
        targets.append(torch.tensor(turn.answer_ids)[learns])
        parts["advantages"].append(torch.from_numpy(turn.signal.advantages)[learns])
        parts["behaviour"].append(torch.tensor(turn.behaviour, dtype=torch.float32)[learns])
        counts.append(len(learns))
        ids += turn.prompt_ids + turn.answer_ids[:-1]
    repeats = torch.tensor(counts)

    def spread(values: list[float]) -> Tensor:
        return torch.tensor(values).repeat_interleave(repeats).to(device)

    return MicroBatch(
        ids=torch.tensor([ids], device=device),
        segments=Segments.of([row_length(turn) for turn in turns], device),
        predict=torch.cat(predict).to(device),
        targets=torch.cat(targets).to(device),
        temperature=spread([turn.temperature for turn in turns]),
        advantages=torch.cat(parts["advantages"]).to(device),
        behaviour=torch.cat(parts["behaviour"]).to(device),
        weights=spread([turn.weight for turn in turns]),
        hint_weights=spread([turn.signal.hint_weight for turn in turns]),
        is_current=spread([float(turn.is_current) for turn in turns]).bool(),
    )
