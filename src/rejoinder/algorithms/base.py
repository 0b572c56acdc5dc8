"""The algorithm seam: turns and verdicts become samples, and samples become a signal per token.

The judge asks an algorithm which verdicts make samples; the trainer asks it what to learn from
them. The judge runs without PyTorch, so signals are NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from rejoinder.journal.base import SampleSpec, TrainSample
from rejoinder.types import Fate, Judgement

FloatArray: TypeAlias = npt.NDArray[np.float32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TokenSignal:
    """What one sample says of each of its T answer tokens."""

    advantages: FloatArray
    """[T] finite; above zero makes a token more likely. Values outside the mask mean nothing."""
    mask: BoolArray
    """[T] the tokens that learn; never one that the model did not sample (rule 1)."""

    def __post_init__(self) -> None:
        if self.advantages.shape != self.mask.shape or self.advantages.ndim != 1:
            raise ValueError(
                f"advantages {self.advantages.shape} and mask {self.mask.shape} must both be [T]"
            )
        if not np.isfinite(self.advantages[self.mask]).all():
            raise ValueError("an advantage inside the mask is not finite")


class Algorithm(Protocol):
    """See the module's text.

    A package outside adds one under the entry point group ``rejoinder.algorithms``: a function
    that takes the ``TrainerConfig`` and returns an ``Algorithm``; ``trainer.algorithm`` names it.
    """

    @property
    def name(self) -> str:
        """What ``trainer.algorithm`` calls it."""
        ...

    @property
    def loss(self) -> str:
        """Name of its loss; a trainer backend that lacks it refuses to start."""
        ...

    def sample_spec(self, judgement: Judgement) -> SampleSpec | Fate:
        """Return the sample that a verdict makes, or why it makes none.

        Args:
            judgement: one with a score; failed judgements never get here (rule 5).
        """
        ...

    def signals(self, samples: Sequence[TrainSample]) -> list[TokenSignal | None]:
        """Return the signal of each sample of a step, in order; None where there is none.

        All samples of a step come together, so that an algorithm may compare them. A missing
        signal is None, never a stand-in value; such a sample changes nothing in the step.
        """
        ...
