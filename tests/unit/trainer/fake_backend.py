"""A backend without PyTorch: its weights are the list of answers that it has trained on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rejoinder.trainer.base import SignalledTurn, StepFigures
from rejoinder.types import WeightsKind


class FakeBackend:
    """Implements ``TrainerBackend``; ``during`` runs in the middle of each gradient."""

    kind = WeightsKind.FULL

    def __init__(self, during: Callable[[], None] = lambda: None) -> None:
        self.during = during
        self.learned: list[list[int]] = []
        self.optimizer_steps = 0
        self.loads: list[tuple[int, int]] = []
        """(answers learned, optimizer steps) after each load."""
        self.served = False
        """Whether the last load was to go on from what the version serves."""
        self.figures = StepFigures({"loss": 0.5, "packed_tokens": 10})
        self._pending: list[list[int]] = []

    def load(
        self, weights: Path | None, checkpoint: Path | None, *, as_served: bool = False
    ) -> None:
        self.learned = json.loads((weights / "weights.json").read_text()) if weights else []
        self.optimizer_steps = (
            json.loads((checkpoint / "optimizer.json").read_text()) if checkpoint else 0
        )
        self._pending = []
        self.served = as_served
        self.loads.append((len(self.learned), self.optimizer_steps))

    def accumulate(self, turns: Sequence[SignalledTurn]) -> Iterator[float]:
        self._pending = []
        for index, turn in enumerate(turns):
            if index == len(turns) // 2:
                self.during()
            self._pending.append(turn.answer_ids)
            yield (index + 1) / len(turns)

    def apply(self, step: int) -> StepFigures:
        if self.figures.skipped is None:
            self.learned += self._pending
            self.optimizer_steps += 1
        self._pending = []
        return self.figures

    def discard(self) -> None:
        self._pending = []

    def save_weights(self, directory: Path) -> None:
        (directory / "weights.json").write_text(json.dumps(self.learned))

    def save_checkpoint(self, directory: Path) -> None:
        (directory / "optimizer.json").write_text(json.dumps(self.optimizer_steps))
