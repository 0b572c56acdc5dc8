"""One policy version in words: where it comes from, its files, and the figures of its step."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rejoinder.cli.terminal import age
from rejoinder.types import WeightsKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rejoinder.journal.records import PolicyVersion

FIGURES = {
    "scored": "samples with a verdict",
    "reward_mean": "mean verdict",
    "answered_by": "answered most of these: version",
    "samples": "samples",
    "turns": "turns with a signal",
    "without_signal": "samples without a signal",
    "hints": "hints",
    "hints_shortened": "hints that fit in part",
    "hints_dropped": "hints that did not fit",
    "hinted_fraction": "share of tokens with a hint",
    "loss": "loss",
    "policy_loss": "its part of verdicts",
    "distil_loss": "its part of hints",
    "kl": "KL term",
    "entropy": "entropy",
    "grad_norm": "gradient norm",
    "learning_rate": "learning rate",
    "skipped": "weights left as they were",
    "advantage_mean": "advantage, mean",
    "advantage_std": "advantage, standard deviation",
    "advantage_positive": "share of tokens with one above 0",
    "ratio_mean": "ratio, mean",
    "ratio_max": "ratio, largest",
    "clip_low_fraction": "share of tokens clipped below",
    "clip_high_fraction": "share of tokens clipped above",
    "dual_clip_fraction": "share of tokens at the dual clip",
    "distil_clip_fraction": "share of tokens with a clipped hint",
    "correction_mean": "correction, mean",
    "corrected_fraction": "share of tokens with a cut one",
    "off_policy_ratio_mean": "ratio to sampling, mean",
    "off_policy_ratio_max": "ratio to sampling, largest",
    "off_policy_kl": "KL to sampling",
    "staleness_mean": "steps since sampling, mean",
    "staleness_max": "steps since sampling, most",
    "mixed_version_turns": "turns of several versions",
    "logprob_difference_mean": "engine and trainer differ, mean",
    "logprob_difference_max": "engine and trainer differ, most",
    "logprob_difference_tokens": "tokens compared for that",
    "tokens": "tokens that learn",
    "packed_tokens": "tokens computed",
    "micro_batches": "passes",
    "prompt_tokens_mean": "tokens of a prompt, mean",
    "answer_tokens_mean": "tokens of an answer, mean",
    "seconds": "seconds",
    "tokens_per_second": "tokens per second",
}
"""What people call the figures of a step, in the order in which they are shown."""
_KINDS = {WeightsKind.FULL: "whole model", WeightsKind.LORA: "adapter"}


def after_rollback(versions: Sequence[PolicyVersion]) -> list[PolicyVersion]:
    """Return those whose parent a rollback had gone back to, of all versions in their order."""
    lineages = {version.version: version.lineage_id for version in versions}
    first = next((found for found in lineages.values() if found is not None), None)
    return [
        version
        for version in versions
        if version.parent is not None
        and version.lineage_id != first
        and lineages.get(version.parent) != version.lineage_id
    ]


def facts_of(version: PolicyVersion, *, is_after_rollback: bool) -> dict[str, str]:
    """Return what is known of a version but for its figures, in words."""
    facts = {
        "version": f"{version.version} of {version.policy}, {version.state}",
        "made": _made(version) + (", after a rollback to it" if is_after_rollback else ""),
    }
    if version.lineage_id is not None:
        facts["lineage"] = version.lineage_id
    gone = "" if version.files else "deleted by trainer.keep_versions; they were: "
    facts["weights"] = f"{gone}{_KINDS[version.kind]}, {version.uri}"
    facts["start weights"] = version.base_uri
    if version.step is not None:
        facts["optimizer"] = version.checkpoint_uri or "not kept"
    if version.pinned:
        facts["kept"] = "always: it is pinned"
    return facts


def figures_of(version: PolicyVersion) -> list[tuple[str, str, str]]:
    """Return words, value and name of each figure; those of other packages come last."""
    known = [name for name in FIGURES if name in version.metrics]
    others = [name for name in version.metrics if name not in FIGURES]
    return [
        (FIGURES.get(name, name.replace("_", " ")), figure(version.metrics[name]), name)
        for name in (*known, *others)
    ]


def figure(value: object) -> str:
    """Return a number as tables show it."""
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _made(version: PolicyVersion) -> str:
    at = f"{datetime.fromtimestamp(version.created_at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    made = f"{at}, {age(max(0.0, time.time() - version.created_at))} ago"
    if version.step is None:
        return f"{made}: the start weights"
    return f"{made}, by step {version.step} from version {version.parent}"
