"""What figures of a step do not say by themselves, and people take for a fault."""

from __future__ import annotations

from collections.abc import Iterator

from rejoinder.types import Json

_LARGE_LOSS = 1.5
"""More than the verdicts of a step amount to where each weighs 1."""
_PARTS = {
    "policy_loss": "what its verdicts weigh, not how wrong the model is",
    "distil_loss": "how far it is from what hints ask for",
    "kl": "how far it is from the start weights",
}
"""Of what a loss is the sum, by the figure of the part."""


def remarks(step: Json) -> Iterator[str]:
    """Yield a line for each figure that needs one, of ``training.last`` of a status document."""
    score = step["mean_score"]
    if score is not None and round(score, 2) == 0:
        teaches = not step["metrics"].get("skipped") and not step["untrained"]
        yield "score 0: as many good as bad" + (", and both teach" if teaches else "")
    loss = step["metrics"].get("loss")
    if loss is not None and abs(loss) > _LARGE_LOSS:
        yield from _of_loss(loss, step["metrics"])


def _of_loss(loss: float, metrics: Json) -> Iterator[str]:
    """Say which part makes a loss large; nothing of one from elsewhere, with parts of its own."""
    if "policy_loss" not in metrics:
        return
    parts = {name: metrics.get(name, 0.0) for name in ("policy_loss", "distil_loss")}
    if "kl" in metrics:  # which is without its coefficient
        parts["kl"] = loss - sum(parts.values())
    largest = max(parts, key=lambda name: abs(parts[name]))
    yield f"loss: {parts[largest]:.3g} of it is {_PARTS[largest]}"
