"""Losses by name: an algorithm names one, and a backend without it refuses to start."""

from __future__ import annotations

from importlib.metadata import entry_points

from rejoinder.errors import ConfigError
from rejoinder.trainer.distil import (
    TeachingLoss,
    candidates,
    distil_jsd,
    distil_tail,
    distil_token,
    distil_topk,
)
from rejoinder.trainer.losses import Loss, policy_loss

ENTRY_POINTS = "rejoinder.losses"
DISTILLING: dict[str, Loss] = {
    "distil_topk": TeachingLoss(distil_topk, candidates),
    "distil_token": TeachingLoss(distil_token, candidates),
    "distil_tail": TeachingLoss(distil_tail, candidates),
    "distil_jsd": TeachingLoss(distil_jsd, candidates),
}
"""Losses that compare with a teacher."""
BUILT_IN: dict[str, Loss] = {"policy": policy_loss, **DISTILLING}


def find_loss(name: str, algorithm: str) -> Loss:
    """Return a built-in loss, or one that an installed package offers.

    One that is a ``TeachingLoss`` asks for a teacher.

    Raises:
        ConfigError: there is none of this name.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    found = entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        raise ConfigError(
            f"trainer.algorithm: {algorithm!r} asks for the loss {name!r}, which this trainer does "
            f"not have (it has {', '.join(sorted({*BUILT_IN, *found.names}))}); install the "
            f"package that offers it as an entry point of the group {ENTRY_POINTS}, or choose "
            "another algorithm"
        )
    loss: Loss = found[name].load()
    return loss
