"""``opd``: on-policy distillation in hindsight, from what the reply says of the answer.

A hint drawn from the reply makes a better-informed teacher of the same answer. The policy's own
tokens are moved towards what that teacher would have said; the verdict counts for nothing, so no
judge is asked for one.
"""

from __future__ import annotations

from collections.abc import Sequence

from rejoinder.algorithms.base import Algorithm, TokenSignal
from rejoinder.algorithms.broadcast import over_answer
from rejoinder.config import TrainerConfig
from rejoinder.journal.records import SampleSpec, TrainSample
from rejoinder.types import Fate, Judgement


class Opd:
    """Implements ``Algorithm``; ``weight`` multiplies the distillation."""

    name = "opd"
    needs_hints = True
    needs_verdicts = False

    def __init__(self, kind: str, weight: float) -> None:
        self._kind = kind
        self._weight = weight

    @property
    def loss(self) -> str:
        """See ``Algorithm``."""
        return f"distil_{self._kind}"

    def sample_spec(self, judgement: Judgement, hints: Sequence[str] = ()) -> SampleSpec | Fate:  # noqa: ARG002 - hints alone count
        """An accepted hint makes a sample, whatever the verdict."""
        return SampleSpec(None, tuple(hints)) if hints else Fate.NO_HINT

    def signals(self, samples: Sequence[TrainSample]) -> list[TokenSignal | Fate | None]:
        """Leave each hinted answer to the teacher; samples without a hint have no signal."""
        return [
            over_answer(sample, 0.0, self._weight) if sample.hints and sample.answer_ids else None
            for sample in samples
        ]


def build(config: TrainerConfig) -> Algorithm:
    """Build the algorithm."""
    return Opd(config.loss.distil.kind, config.hint_weight)
