"""What goes into a step: samples become turns with signals, weights and reasons for the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rejoinder.algorithms.base import Algorithm, TokenSignal
from rejoinder.config import LossConfig
from rejoinder.journal.records import PolicyVersion, StepSample, TrainSample
from rejoinder.trainer.aggregation import token_weights
from rejoinder.trainer.base import SignalledTurn, StepFigures
from rejoinder.trainer.hinted import HintFault, HintRenderer, TeacherPrompts
from rejoinder.types import Fate

MIXED_VERSIONS = "mixed_versions"
"""Several versions sampled it, and the loss corrects nothing (design: in flight across an
update)."""


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A step's turns. Samples without a signal are consumed with it and change nothing in it."""

    samples: list[TrainSample]
    turns: list[SignalledTurn]
    without_signal: dict[str, str]
    """Why a sample gives no signal, by the id of the sample."""
    metrics: dict[str, float]
    hint_faults: Counter[str] = field(default_factory=Counter)
    """Hints that could not be put into their prompts, or not be read in them, by reason."""

    def sample_of(self, turn: SignalledTurn) -> str:
        """Return the id of the sample that a turn of this step, the very object, was made of."""
        kept = [one for one in self.samples if one.sample_id not in self.without_signal]
        pairs = zip(kept, self.turns, strict=True)
        return next(sample.sample_id for sample, one in pairs if one is turn)


def prepare_step(
    samples: Sequence[TrainSample],
    algorithm: Algorithm,
    loss: LossConfig,
    distances: Mapping[int, int],
    head_version: int,
    hinted: HintRenderer | None = None,
    refused: Collection[str] = (),
) -> PreparedStep:
    """Ask the algorithm for signals and weigh the tokens of the whole step.

    A sample whose hints do not fit into its prompt learns from its verdict alone, if it has one.

    Args:
        samples: the batch.
        algorithm: gives the signals.
        loss: aggregation, and whether it corrects for the behaviour.
        distances: training steps from each version to the head; see ``steps_to_head``.
        head_version: the newest version, which the weights in training have made.
        hinted: puts hints into prompts; needed by algorithms that learn from hints.
        refused: ids of samples whose hints the teacher has refused to read.
    """
    kept: list[tuple[TrainSample, TokenSignal, TeacherPrompts]] = []
    reasons: dict[str, str] = {}
    faults: Counter[str] = Counter()
    for sample, given in zip(samples, algorithm.signals(samples), strict=True):
        if isinstance(given, Fate):
            reasons[sample.sample_id] = given
            continue
        signal, prompts = _with_prompts(sample, given, hinted, refused)
        faults.update(prompts.faults)
        reason = _no_signal_because(sample, signal, loss)
        if signal is None and prompts.faults:
            reason = prompts.faults[0]
        if reason is None:
            assert signal is not None
            kept.append((sample, signal, prompts))
        else:
            reasons[sample.sample_id] = reason
    weights = token_weights(
        [int(signal.mask.sum()) for _, signal, _ in kept],
        [sample.trajectory for sample, _, _ in kept],
        loss.aggregation,
    )
    turns = [
        SignalledTurn(
            prompt_ids=sample.prompt_ids,
            answer_ids=sample.answer_ids,
            behaviour=sample.logprobs,
            temperature=sample.temperature,
            signal=signal,
            weight=weight,
            is_current={run.version for run in sample.versions} == {head_version},
            teacher_prompts=prompts.prompts,
        )
        for (sample, signal, prompts), weight in zip(kept, weights, strict=True)
    ]
    metrics = _sample_metrics(samples, distances) | _signal_metrics([one for _, one, _ in kept])
    if hinted is not None:
        metrics["hints"] = sum(len(turn.teacher_prompts) for turn in turns)
        metrics["hints_shortened"] = sum(prompts.shortened for _, _, prompts in kept)
        metrics["hints_dropped"] = faults.total()
    return PreparedStep(list(samples), turns, reasons, metrics, faults)


def _with_prompts(
    sample: TrainSample,
    signal: TokenSignal | None,
    hinted: HintRenderer | None,
    refused: Collection[str],
) -> tuple[TokenSignal | None, TeacherPrompts]:
    """Return a signal with the prompts that its hints make; without any, the verdict alone."""
    if signal is None or not signal.hint_weight:
        return signal, TeacherPrompts()
    if hinted is None:
        raise ValueError("the algorithm learns from hints, and nothing puts them into prompts")
    if sample.sample_id in refused:
        prompts = TeacherPrompts(faults=(HintFault.TEACHER_FAILED,) * len(sample.hints))
    else:
        prompts = hinted.prompts(sample)
    if prompts.prompts:
        return signal, prompts
    has_another = bool(signal.advantages[signal.mask].any())
    return (replace(signal, hint_weight=0.0) if has_another else None), prompts


def steps_to_head(versions: Sequence[PolicyVersion], head_version: int) -> dict[int, int]:
    """Return how many training steps lie between each version and the head, up its parents.

    Versions beside the chain, of a lineage that was rolled back, are not in it. A step that changed
    no weights, so that its version has its parent's files, counts nothing.
    """
    known = {one.version: one for one in versions}
    current = known.get(head_version)
    distances = {head_version: 0}
    while current is not None and current.parent is not None:
        parent = known.get(current.parent)
        is_moved = parent is None or parent.uri != current.uri
        distances[current.parent] = distances[current.version] + is_moved
        current = parent
    return distances


def used_samples(prepared: PreparedStep, skipped: str | None) -> list[StepSample]:
    """Return the samples that a step uses up, each with why it changed no weights, if it did not.

    Args:
        prepared: the step.
        skipped: why the optimizer left the weights as they were; None: it did not.
    """
    return [
        StepSample(
            one.sample_id,
            one.reward,
            prepared.without_signal.get(one.sample_id, skipped),
            one.hints,
        )
        for one in prepared.samples
    ]


def step_metrics(prepared: PreparedStep, figures: StepFigures, seconds: float) -> dict[str, float]:
    """Return what the journal keeps of a step; names in ``docs/reference/algorithms.md``."""
    metrics = prepared.metrics | figures.metrics
    metrics["skipped"] = float(figures.skipped is not None)
    metrics["without_signal"] = float(len(prepared.without_signal))
    metrics["seconds"] = seconds
    metrics["tokens_per_second"] = metrics.get("packed_tokens", 0.0) / max(seconds, 1e-9)
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _no_signal_because(
    sample: TrainSample, signal: TokenSignal | None, loss: LossConfig
) -> str | None:
    if signal is None or not signal.mask.any():
        return Fate.NO_SIGNAL
    complete = len(sample.logprobs) == len(sample.answer_ids)
    if not complete or not all(map(math.isfinite, sample.logprobs)):
        return Fate.MISSING_LOGPROBS  # rule 1; the journal ends such turns earlier
    if signal.mask.shape != (len(sample.answer_ids),):
        raise ValueError(
            f"the algorithm's mask has {len(signal.mask)} tokens, the answer "
            f"{len(sample.answer_ids)}"
        )
    mixed = len({run.version for run in sample.versions}) > 1
    return MIXED_VERSIONS if mixed and loss.correction == "none" else None


def _sample_metrics(
    samples: Sequence[TrainSample], distances: Mapping[int, int]
) -> dict[str, float]:
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    stale = [distances[s.oldest_version] for s in samples if s.oldest_version in distances]
    metrics: dict[str, float] = {
        "samples": len(samples),
        "mixed_version_turns": sum(
            len({run.version for run in sample.versions}) > 1 for sample in samples
        ),
        "prompt_tokens_mean": float(np.mean([len(sample.prompt_ids) for sample in samples])),
        "answer_tokens_mean": float(np.mean([len(sample.answer_ids) for sample in samples])),
    }
    if rewards:
        metrics["scored"] = len(rewards)
        answered = Counter(one.oldest_version for one in samples if one.reward is not None)
        metrics["answered_by"] = min(answered, key=lambda version: (-answered[version], version))
        metrics["reward_mean"] = float(np.mean(rewards))
    if stale:
        metrics["staleness_mean"] = float(np.mean(stale))
        metrics["staleness_max"] = max(stale)
    return metrics


def _signal_metrics(signals: Sequence[TokenSignal]) -> dict[str, float]:
    if not signals:
        return {"turns": 0}
    values = np.concatenate([signal.advantages[signal.mask] for signal in signals])
    return {
        "turns": len(signals),
        "advantage_mean": float(values.mean()),
        "advantage_std": float(values.std()),
        "advantage_positive": float((values > 0).mean()),
    }
