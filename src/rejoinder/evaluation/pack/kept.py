"""Served weights of earlier versions, for runs that go back (``trainer/relapse.py``)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from rejoinder.evaluation.pack.stacked import StackedModel


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """One version of one seat."""

    weights: dict[str, Tensor]
    """In bfloat16, as versions of whole systems are on a GPU."""
    steps: int
    """That it took to come there."""


class KeptVersions:
    """What each seat may go back to. Its start weights are not among it."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[int, KeptVersion]] = {}

    def begin(self, seat: int) -> None:
        """Forget what a seat had."""
        self._kept[seat] = {}

    @torch.no_grad()
    def keep(
        self, seat: int, version: int, served: StackedModel, steps: int, held: Collection[int]
    ) -> None:
        """Keep a seat's served weights as a version, and forget all that are not ``held``."""
        own = self._kept[seat]
        for gone in own.keys() - held:
            del own[gone]
        if version in held:
            weights = {
                name: stack[seat].to(torch.bfloat16, copy=True)
                for name, stack in served.weights.items()
            }
            own[version] = KeptVersion(weights, steps)

    def of(self, seat: int, version: int) -> KeptVersion | None:
        """Return a version of a seat; None: it is that of the start."""
        return self._kept[seat].get(version)
