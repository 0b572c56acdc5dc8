"""``combine``: verdicts and hints together, each with its weight.

L = w_rl L_binary + w_opd L_distil. A turn that has one of the two learns from that one; the missing
one has weight exactly zero, never a stand-in value.
"""

from __future__ import annotations

from collections.abc import Sequence

from rejoinder.algorithms.base import Algorithm, TokenSignal
from rejoinder.algorithms.broadcast import advantages, clear_score, over_answer
from rejoinder.config import TrainerConfig
from rejoinder.journal.records import FEEDBACK, SampleSpec, TrainSample
from rejoinder.types import Fate, Judgement


class Combine:
    """Implements ``Algorithm``."""

    name = "combine"
    needs_hints = True
    needs_verdicts = True

    def __init__(self, config: TrainerConfig) -> None:
        self._config = config

    @property
    def loss(self) -> str:
        """See ``Algorithm``."""
        return f"distil_{self._config.loss.distil.kind}"

    def sample_spec(self, judgement: Judgement, hints: Sequence[str] = ()) -> SampleSpec | Fate:
        """A clear verdict or an accepted hint makes a sample.

        A judge's good verdict beside a hint counts for nothing: who says how an answer should have
        been was not pleased with it, however politely, and small judges take politeness for praise.
        A person's own score stands.
        """
        reward = clear_score(judgement)
        if reward is None and not hints:
            return judgement.why or Fate.NEUTRAL
        if reward == 1.0 and hints and judgement.fingerprint != FEEDBACK:
            reward = None
        return SampleSpec(reward, tuple(hints))

    def signals(self, samples: Sequence[TrainSample]) -> list[TokenSignal | Fate | None]:
        """Weigh what each sample has; those with neither have no signal."""
        by_verdict = advantages(samples, self._config.baseline)
        return [self._signal(*pair) for pair in zip(samples, by_verdict, strict=True)]

    def _signal(self, sample: TrainSample, advantage: float | None) -> TokenSignal | Fate | None:
        if not sample.answer_ids:
            return None
        if not advantage and not sample.hints:
            return None if advantage is None else Fate.ALL_ALIKE
        weight = self._config.hint_weight if sample.hints else 0.0
        return over_answer(sample, self._config.verdict_weight * (advantage or 0.0), weight)


def build(config: TrainerConfig) -> Algorithm:
    """Build the algorithm."""
    return Combine(config)
