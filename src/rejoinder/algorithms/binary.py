"""``binary``: every token of an answer gets the verdict, -1 or +1, as its advantage.

A_t = r - b, broadcast over the answer; neutral verdicts make no sample. For b see ``broadcast``.
"""

from __future__ import annotations

from collections.abc import Sequence

from rejoinder.algorithms.base import Algorithm, TokenSignal
from rejoinder.algorithms.broadcast import advantages, clear_score, over_answer
from rejoinder.config import Baseline, TrainerConfig
from rejoinder.journal.records import SampleSpec, TrainSample
from rejoinder.types import Fate, Judgement


class Binary:
    """Implements ``Algorithm``."""

    name = "binary"
    loss = "policy"
    needs_hints = False
    needs_verdicts = True

    def __init__(self, baseline: Baseline = "none") -> None:
        self._baseline: Baseline = baseline

    def sample_spec(self, judgement: Judgement, hints: Sequence[str] = ()) -> SampleSpec | Fate:  # noqa: ARG002 - verdicts alone count
        """A clear verdict makes a sample; a neutral one says nothing of any token."""
        reward = clear_score(judgement)
        if reward is None:
            return judgement.why or Fate.NEUTRAL
        return SampleSpec(reward)

    def signals(self, samples: Sequence[TrainSample]) -> list[TokenSignal | Fate | None]:
        """Broadcast each verdict over its answer; samples without one have no signal."""
        by_verdict = advantages(samples, self._baseline)
        return [self._signal(*pair) for pair in zip(samples, by_verdict, strict=True)]

    def _signal(self, sample: TrainSample, advantage: float | None) -> TokenSignal | Fate | None:
        if not advantage:
            return None if advantage is None else Fate.ALL_ALIKE
        return over_answer(sample, advantage)


def build(config: TrainerConfig) -> Algorithm:
    """Build the algorithm."""
    return Binary(config.baseline)
