"""The algorithm seam: turns and verdicts become samples, and samples become a signal per token.

The judge asks an algorithm which verdicts make samples; the trainer asks it what to learn from
them. The judge runs without PyTorch, so signals are NumPy arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from rejoinder.journal.records import SampleSpec, TrainSample
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
    hint_weight: float = 0.0
    """What the teacher's view under the sample's hints counts; 0 where there is no hint."""

    def __post_init__(self) -> None:
        if self.advantages.shape != self.mask.shape or self.advantages.ndim != 1:
            raise ValueError(
                f"advantages {self.advantages.shape} and mask {self.mask.shape} must both be [T]"
            )
        if not np.isfinite(self.advantages[self.mask]).all():
            raise ValueError("an advantage inside the mask is not finite")
        if not 0 <= self.hint_weight < math.inf:
            raise ValueError(f"the hint weight {self.hint_weight} is below 0 or not finite")


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

    @property
    def needs_hints(self) -> bool:
        """Whether it learns from hints: without a hint judge it then refuses to start."""
        ...

    @property
    def needs_verdicts(self) -> bool:
        """Whether it learns from verdicts: where it does not, no judge is built or asked."""
        ...

    def sample_spec(self, judgement: Judgement, hints: Sequence[str] = ()) -> SampleSpec | Fate:
        """Return the sample that a judgement makes, or why it makes none.

        Args:
            judgement: of an answer, by the judge or a person. Its score may be None: no verdict,
                which is never taken for a neutral one (rule 5). It always is, but for a person's
                score, where the algorithm needs no verdicts.
            hints: what the reply says the answer should have been; accepted ones only.
        """
        ...

    def signals(self, samples: Sequence[TrainSample]) -> list[TokenSignal | Fate | None]:
        """Return the signal of each sample of a step, in order; where there is none, why, or None.

        All samples of a step come together, so that an algorithm may compare them. A missing
        signal is never a stand-in value; such a sample changes nothing in the step.
        """
        ...
