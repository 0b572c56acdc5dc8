"""Learning rates, clipping, weight decay and steps that are not finite."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rejoinder.config import TrainerConfig
from rejoinder.errors import ConfigError
from rejoinder.trainer.optimizer import Optimizer, learning_rate


def rates(steps: list[int], **settings: Any) -> list[float]:
    config = TrainerConfig(learning_rate=1.0, **settings)
    return [learning_rate(config, step) for step in steps]


def test_a_constant_rate_is_constant() -> None:
    assert rates([1, 10, 10**6]) == [1.0, 1.0, 1.0]


def test_warm_up_rises_to_the_full_rate() -> None:
    assert rates([1, 2, 4, 5], warmup_steps=4) == [0.25, 0.5, 1.0, 1.0]


def test_a_linear_schedule_falls_to_zero() -> None:
    found = rates([2, 3, 7, 12, 50], schedule="linear", warmup_steps=2, schedule_steps=11)
    assert found == pytest.approx([1.0, 1.0, 5 / 9, 0.0, 0.0])


def test_a_cosine_schedule_falls_to_zero_by_way_of_the_half() -> None:
    found = rates([1, 6, 11, 99], schedule="cosine", schedule_steps=10)
    assert found == pytest.approx([1.0, 0.5, 0.0, 0.0])


def test_an_inverse_square_root_falls_without_end() -> None:
    found = rates([2, 4, 16, 400], schedule="inverse_sqrt", warmup_steps=4)
    assert found == pytest.approx([0.5, 1.0, 0.5, 0.1])
    assert rates([1, 4], schedule="inverse_sqrt") == pytest.approx([1.0, 0.5])


def parameters() -> dict[str, nn.Parameter]:
    draw = torch.Generator().manual_seed(0)
    return {
        "matrix": nn.Parameter(torch.randn(3, 4, generator=draw)),
        "norm": nn.Parameter(torch.randn(4, generator=draw)),
    }


def set_gradients(weights: dict[str, nn.Parameter], value: float | Tensor) -> None:
    for weight in weights.values():
        weight.grad = torch.zeros_like(weight) + value


def adam_by_hand(
    weight: Tensor, grads: list[Tensor], rate: float, decay: float, betas: tuple[float, float]
) -> Tensor:
    """AdamW as in Loshchilov and Hutter 2019, algorithm 2, in float64."""
    w, m, v = (
        weight.double(),
        torch.zeros(weight.shape).double(),
        torch.zeros(weight.shape).double(),
    )
    for t, grad in enumerate(grads, start=1):
        g = grad.double()
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        w = w - rate * decay * w
        w = w - rate * (m / (1 - betas[0] ** t)) / ((v / (1 - betas[1] ** t)).sqrt() + 1e-8)
    return w


def test_steps_are_those_of_adamw_and_only_matrices_decay() -> None:
    config = TrainerConfig(learning_rate=0.01, weight_decay=0.1, grad_clip=1e9)
    weights = parameters()
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    optimizer = Optimizer(weights, config)
    for step, value in enumerate((0.3, -0.2, 0.5), start=1):
        set_gradients(weights, value)
        assert optimizer.apply(step).applied
    for name, decay in (("matrix", 0.1), ("norm", 0.0)):
        grads = [torch.zeros(before[name].shape) + value for value in (0.3, -0.2, 0.5)]
        expected = adam_by_hand(before[name], grads, 0.01, decay, config.betas)
        torch.testing.assert_close(weights[name].double(), expected, atol=1e-6, rtol=1e-6)


def test_the_norm_reported_is_that_before_clipping() -> None:
    weights = parameters()
    optimizer = Optimizer(weights, TrainerConfig(grad_clip=0.5))
    set_gradients(weights, 3.0)
    update = optimizer.apply(1)
    assert update.grad_norm == pytest.approx(3.0 * math.sqrt(16))
    clipped = torch.cat([w.grad.flatten() for w in weights.values() if w.grad is not None])
    assert float(clipped.norm()) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(bad: float) -> None:  # B083
    weights = parameters()
    optimizer = Optimizer(weights, TrainerConfig())
    set_gradients(weights, 0.1)
    optimizer.apply(1)
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    moments = {name: value.clone() for name, value in optimizer.state().items()}
    set_gradients(weights, 0.1)
    assert weights["norm"].grad is not None
    weights["norm"].grad[0] = bad
    update = optimizer.apply(2)
    assert not update.applied
    assert not math.isfinite(update.grad_norm)
    assert all(torch.equal(weight, before[name]) for name, weight in weights.items())
    assert all(torch.equal(value, moments[name]) for name, value in optimizer.state().items())


def test_moments_of_other_weights_are_refused() -> None:
    weights = parameters()
    optimizer = Optimizer(weights, TrainerConfig())
    set_gradients(weights, 0.1)
    optimizer.apply(1)
    other = Optimizer({"matrix": nn.Parameter(torch.zeros(2, 2))}, TrainerConfig())
    with pytest.raises(ConfigError, match="other weights"):
        other.load_state(optimizer.state())
