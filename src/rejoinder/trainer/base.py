"""The trainer-backend seam: turns with signals become an optimizer step and a version's files.

The training loop knows this module and no PyTorch; a backend knows no journal. A step is
``accumulate``, to be used up, then ``apply`` or ``discard``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rejoinder.algorithms.base import TokenSignal
from rejoinder.errors import RejoinderError
from rejoinder.types import WeightsKind


@dataclass(frozen=True, slots=True)
class SignalledTurn:
    """One turn of a step. Lists run over its T answer tokens."""

    prompt_ids: list[int]
    """[P] at least one id."""
    answer_ids: list[int]
    """[T] exactly what was sampled."""
    behaviour: list[float]
    """[T] log-probabilities they were sampled with, finite."""
    temperature: float
    """What they were sampled at; above 0."""
    signal: TokenSignal
    weight: float
    """What one token of the mask counts in the step's mean; see ``token_weights``."""
    is_current: bool
    """Whether exactly the newest version sampled all of it, so that its log-probabilities and
    those of the same weights in the trainer differ by nothing but arithmetic."""
    teacher_prompts: tuple[list[int], ...] = ()
    """The prompt with a hint in it, one for each hint, that of the longest hint first; none where
    ``signal.hint_weight`` is 0."""

    def __post_init__(self) -> None:
        if bool(self.signal.hint_weight) != bool(self.teacher_prompts):
            raise ValueError(
                f"a hint weight of {self.signal.hint_weight} with {len(self.teacher_prompts)} "
                "prompts for the teacher"
            )


@dataclass(frozen=True, slots=True)
class StepFigures:
    """What a step did."""

    metrics: dict[str, float]
    skipped: str | None = None
    """Why the weights are untouched: ``non_finite_loss``, ``non_finite_gradient``."""


class TeacherAway(RejoinderError):
    """The teacher does not answer now; the step loses nothing and is taken later."""


class TeacherFailed(RejoinderError):
    """The teacher cannot score some turns; the step has to be taken without their hints."""

    def __init__(self, message: str, turns: Sequence[SignalledTurn]) -> None:
        super().__init__(message)
        self.turns = list(turns)
        """The very objects that ``accumulate`` was given."""


class TrainerBackend(Protocol):
    """Holds weights and optimizer of one policy. Not safe from several threads."""

    @property
    def kind(self) -> WeightsKind:
        """What its versions hold."""
        ...

    def load(
        self, weights: Path | None, checkpoint: Path | None, *, as_served: bool = False
    ) -> None:
        """Take up a version and the optimizer state after it, dropping what was held.

        Args:
            weights: directory of the version; None means the start weights.
            checkpoint: directory that ``save_checkpoint`` filled; None starts the optimizer anew.
            as_served: train on from what the version serves, where other weights were in training.

        Raises:
            ConfigError: the files do not fit the configuration; the message says what to change.
            TeacherAway: the teacher does not answer now.
        """
        ...

    def accumulate(self, turns: Sequence[SignalledTurn]) -> Iterator[float]:
        """Compute a step's gradient, yielding the share done (0 to 1] after each micro-batch.

        Raises:
            TeacherAway: the teacher does not answer now.
            TeacherFailed: the teacher cannot score some of the turns.
        """
        ...

    def apply(self, step: int) -> StepFigures:
        """Take the optimizer step number ``step`` (from 1) with the gradient that is there.

        A loss or gradient that is not finite leaves weights and optimizer as they are.
        """
        ...

    def discard(self) -> None:
        """Forget the gradient."""
        ...

    def save_weights(self, directory: Path) -> None:
        """Write the weights into an empty directory: a Hugging Face model or a PEFT adapter."""
        ...

    def save_checkpoint(self, directory: Path) -> None:
        """Write into an empty directory what goes on from here needs beside the weights."""
        ...
