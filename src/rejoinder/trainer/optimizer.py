"""AdamW with warm-up, schedules and a guard against gradients that are not finite.

The learning rate follows from the step's number alone, so that a resumed run needs no state for
it. Weight decay is for matrices only; norms and biases have none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rejoinder.config import TrainerConfig
from rejoinder.errors import ConfigError

EPS = 1e-8
"""Of Adam."""


def learning_rate(config: TrainerConfig, step: int) -> float:
    """Return the learning rate of a step (from 1).

    It rises linearly over ``warmup_steps`` and then stays; or falls to zero at ``schedule_steps``
    along a line or half a cosine; or with the inverse square root of the step's number, without
    end (Vaswani et al. 2017).
    """
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    if config.schedule == "inverse_sqrt":
        return config.learning_rate * math.sqrt(max(1, config.warmup_steps) / step)
    span = max(1, config.schedule_steps - config.warmup_steps)
    done = min(1.0, (step - 1 - config.warmup_steps) / span)
    share = 1.0 - done if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return config.learning_rate * share


@dataclass(frozen=True, slots=True)
class Update:
    """What an optimizer step did."""

    applied: bool
    grad_norm: float
    """Before clipping; not finite where the step was skipped."""
    learning_rate: float


class Optimizer:
    """AdamW (Loshchilov and Hutter 2019) over named parameters."""

    def __init__(self, parameters: dict[str, nn.Parameter], config: TrainerConfig) -> None:
        self._parameters = parameters
        self._config = config
        matrices = [weight for weight in parameters.values() if weight.ndim >= 2]
        others = [weight for weight in parameters.values() if weight.ndim < 2]
        groups = [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self._adam = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=config.learning_rate,
            betas=config.betas,
            eps=EPS,
            fused=True,
        )

    def apply(self, step: int) -> Update:
        """Clip the gradient and take a step; nothing changes if its norm is not finite."""
        rate = learning_rate(self._config, step)
        norm = nn.utils.clip_grad_norm_(self._parameters.values(), self._config.grad_clip)
        grad_norm = float(norm)
        if not math.isfinite(grad_norm):
            return Update(applied=False, grad_norm=grad_norm, learning_rate=rate)
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        return Update(applied=True, grad_norm=grad_norm, learning_rate=rate)

    def zero_grad(self) -> None:
        """Forget the gradient."""
        self._adam.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """Return the moments as ``<kind>/<parameter>``; empty before the first step."""
        return {
            f"{kind}/{name}": value
            for name, weight in self._parameters.items()
            for kind, value in self._adam.state.get(weight, {}).items()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over moments.

        Raises:
            ConfigError: they belong to other parameters.
        """
        self._adam.state.clear()
        found: dict[str, dict[str, Tensor]] = {}
        for key, value in state.items():
            kind, _, name = key.partition("/")
            found.setdefault(name, {})[kind] = value
        for name, moments in found.items():
            weight = self._parameters.get(name)
            if weight is None or moments["exp_avg"].shape != weight.shape:
                raise ConfigError(
                    f"the checkpoint's optimizer state is of other weights ({name} does not fit): "
                    "trainer.lora was changed; set it back, or begin a new lineage with "
                    "`rejoinder policy rollback`"
                )
            self._adam.state[weight] = {
                # Fused AdamW wants its step counts on the device, in fp32.
                kind: value.to(weight.device, torch.float32)
                for kind, value in moments.items()
            }
