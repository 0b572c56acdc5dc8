"""The policy loss against an independent implementation, exact values, and its invariances."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rejoinder.config import LossConfig
from rejoinder.errors import ConfigError
from rejoinder.trainer.losses import LossInputs, kl_terms, policy_loss

from . import numpy_losses

TOKENS = 24


def draw_tokens(seed: int, count: int = TOKENS, spread: float = 0.5) -> numpy_losses.Tokens:
    random = np.random.default_rng(seed)
    level = -np.abs(random.normal(1.5, 1.0, count))
    return numpy_losses.Tokens(
        now=level,
        old=level + random.normal(0, spread, count),
        mu=level + random.normal(0, spread, count),
        ref=level + random.normal(0, spread, count),
        a=random.choice([-1.0, 1.0, 0.5, 0.0], count),
        w=random.dirichlet(np.ones(count)),
        entropy=random.uniform(0, 3, count),
    )


def as_inputs(tokens: numpy_losses.Tokens, *, leaf: bool = True) -> LossInputs:
    def tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values.copy())

    return LossInputs(
        logprobs=tensor(tokens.now).requires_grad_(leaf),
        anchor=tensor(tokens.old),
        behaviour=tensor(tokens.mu),
        advantages=tensor(tokens.a),
        weights=tensor(tokens.w),
        reference=tensor(tokens.ref),
        entropy=tensor(tokens.entropy),
    )


def run(inputs: LossInputs, config: LossConfig) -> tuple[float, Tensor]:
    """Return the loss and its gradient by the log-probabilities."""
    loss, _ = policy_loss(inputs, config)
    loss.backward()
    assert inputs.logprobs.grad is not None
    return loss.item(), inputs.logprobs.grad


CONFIGS = [
    LossConfig(correction=correction, dual_clip=dual)
    for correction, dual in itertools.product(
        ("none", "bypass", "tis", "icepop", "decoupled"), (None, 1.5)
    )
] + [
    LossConfig(kl_coefficient=0.3, kl_kind=kind, kl_importance=weighted, entropy_coefficient=0.1)
    for kind, weighted in itertools.product(("k1", "k2", "k3"), (False, True))
]


def name(config: LossConfig) -> str:
    return ",".join(
        f"{key}={value}" for key, value in config.model_dump(exclude_defaults=True).items()
    )


@pytest.mark.parametrize("config", CONFIGS, ids=name)
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_are_those_of_the_formulas(config: LossConfig, seed: int) -> None:
    tokens = draw_tokens(seed)
    loss, grad = run(as_inputs(tokens), config)
    assert loss == pytest.approx(numpy_losses.loss(tokens, config), abs=1e-12)
    np.testing.assert_allclose(grad.numpy(), numpy_losses.gradient(tokens, config), atol=1e-7)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), which=st.sampled_from(CONFIGS), spread=st.floats(0.01, 3.0))
def test_loss_is_that_of_the_formulas_for_any_tokens(
    seed: int, which: LossConfig, spread: float
) -> None:
    tokens = draw_tokens(seed, spread=spread)
    loss, _ = policy_loss(as_inputs(tokens), which)
    assert loss.item() == pytest.approx(numpy_losses.loss(tokens, which), rel=1e-9, abs=1e-9)


def one_token(config: LossConfig, **values: float) -> tuple[float, float]:
    """Loss and gradient of a single token with weight 1."""
    base = {"l": -1.0, "old": -1.0, "mu": -1.0, "a": 1.0} | values

    def tensor(value: float) -> Tensor:
        return torch.tensor([value], dtype=torch.float64)

    inputs = LossInputs(
        logprobs=tensor(base["l"]).requires_grad_(),
        anchor=tensor(base["old"]),
        behaviour=tensor(base["mu"]),
        advantages=tensor(base["a"]),
        weights=tensor(1.0),
        reference=tensor(base.get("ref", -1.0)),
    )
    loss, grad = run(inputs, config)
    return loss, float(grad)


@pytest.mark.parametrize(
    ("advantage", "log_ratio", "expected"),
    [
        (1.0, 0.0, (-1.0, -1.0)),
        (1.0, math.log(1.2), (-1.2, -1.2)),
        (1.0, math.log(1.5), (-1.28, 0.0)),  # above the upper clip: no further push up
        (1.0, math.log(0.5), (-0.5, -0.5)),  # pushed up however far down
        (-1.0, math.log(0.5), (0.8, 0.0)),  # below the lower clip: no further push down
        (-1.0, math.log(1.5), (1.5, 1.5)),  # pushed down however far up
    ],
)
def test_the_clip_is_asymmetric_and_one_sided(
    advantage: float, log_ratio: float, expected: tuple[float, float]
) -> None:
    found = one_token(LossConfig(correction="none"), a=advantage, l=-1.0 + log_ratio)
    assert found == pytest.approx(expected)


def test_the_dual_clip_bounds_the_loss_of_a_negative_advantage() -> None:
    config = LossConfig(correction="none", dual_clip=3.0)
    assert one_token(config, a=-1.0, l=-1.0 + math.log(5)) == pytest.approx((3.0, 0.0))
    assert one_token(config, a=1.0, l=-1.0 + math.log(5)) == pytest.approx((-1.28, 0.0))


@pytest.mark.parametrize(
    ("correction", "mismatch", "factor"),
    [
        ("none", 4.0, 1.0),
        ("tis", 0.25, 0.25),
        ("tis", 4.0, 2.0),
        ("icepop", 1.5, 1.5),
        ("icepop", 4.0, 0.0),
        ("icepop", 0.25, 0.0),
        ("decoupled", 1.5, 1.5),
        ("decoupled", 4.0, 2.0),
    ],
)
def test_corrections_multiply_the_policy_term(
    correction: Any, mismatch: float, factor: float
) -> None:
    found = one_token(LossConfig(correction=correction), mu=-1.0 - math.log(mismatch))
    assert found == pytest.approx((-factor, -factor))


def test_bypass_takes_the_behaviour_as_its_anchor() -> None:
    config = LossConfig(correction="bypass")
    assert one_token(config, mu=-1.0 - math.log(1.1)) == pytest.approx((-1.1, -1.1))
    assert one_token(config, mu=-1.0 - math.log(2.0)) == pytest.approx((-1.28, 0.0))


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("log_ratio", [90.0, -90.0, 1e4])
@pytest.mark.parametrize("correction", ["none", "bypass", "tis", "icepop", "decoupled"])
def test_a_huge_log_ratio_never_overflows(  # B083
    correction: Any, log_ratio: float, advantage: float
) -> None:
    inputs = LossInputs(
        logprobs=torch.tensor([-1.0 + log_ratio]).requires_grad_(),
        anchor=torch.tensor([-1.0]),
        behaviour=torch.tensor([-1.0 - log_ratio]),
        advantages=torch.tensor([advantage]),
        weights=torch.tensor([1.0]),
        reference=torch.tensor([-1.0]),
    )
    config = LossConfig(correction=correction, kl_coefficient=0.1, kl_importance=True)
    loss, grad = run(inputs, config)
    assert math.isfinite(loss)
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize("config", CONFIGS[:10], ids=name)
def test_zero_advantage_gives_exactly_zero_gradient(config: LossConfig) -> None:
    tokens = draw_tokens(4)
    inputs = as_inputs(numpy_losses.Tokens(**(vars(tokens) | {"a": np.zeros(TOKENS)})))
    loss, grad = run(inputs, config)
    assert loss == 0.0
    assert not grad.any()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), which=st.sampled_from(CONFIGS), data=st.data())
def test_order_and_split_of_tokens_change_nothing(
    seed: int, which: LossConfig, data: st.DataObject
) -> None:
    """However tokens are spread over micro-batches, losses, gradients and means add up."""
    tokens = draw_tokens(seed)
    whole = as_inputs(tokens)
    loss, metrics = policy_loss(whole, which)
    loss.backward()
    order = data.draw(st.permutations(range(TOKENS)))
    cut = data.draw(st.integers(0, TOKENS))
    parts = [list(order[:cut]), list(order[cut:])]
    losses, means = [], []
    for part in parts:
        inputs = as_inputs(numpy_losses.Tokens(**{k: v[part] for k, v in vars(tokens).items()}))
        part_loss, part_metrics = policy_loss(inputs, which)
        part_loss.backward()
        losses.append(part_loss.item())
        means.append(part_metrics.means)
        assert inputs.logprobs.grad is not None
        assert whole.logprobs.grad is not None
        torch.testing.assert_close(inputs.logprobs.grad, whole.logprobs.grad[part])
    assert sum(losses) == pytest.approx(loss.item(), abs=1e-9)
    for key, value in metrics.means.items():
        total = sum(float(part[key]) for part in means)
        assert total == pytest.approx(float(value), abs=1e-9), key


P = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
Q = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
KL_PQ = float((P * (P / Q).log()).sum())
KL_QP = float((Q * (Q / P).log()).sum())


def expected_kl(kind: str, sampled_from: Tensor, *, importance: bool) -> tuple[float, Tensor]:
    """E over ``sampled_from`` of the estimator of KL(P || Q), and its gradient by P's logits."""
    logits = P.log().clone().requires_grad_()
    logprobs = logits.log_softmax(-1)
    inputs = LossInputs(
        logprobs=logprobs,
        anchor=logprobs.detach(),
        behaviour=sampled_from.log(),
        advantages=torch.zeros(3),
        weights=torch.ones(3),
        reference=Q.log(),
    )
    config = LossConfig(kl_coefficient=1.0, kl_kind=kind, kl_importance=importance)  # type: ignore[arg-type]
    value = (sampled_from * kl_terms(inputs, config)).sum()
    value.backward()
    assert logits.grad is not None
    return float(value.detach()), logits.grad


def exact_kl_gradient() -> Tensor:
    logits = P.log().clone().requires_grad_()
    logprobs = logits.log_softmax(-1)
    (logprobs.exp() * (logprobs - Q.log())).sum().backward()
    assert logits.grad is not None
    return logits.grad


def test_kl_estimates_have_the_right_direction() -> None:  # B080: 0.191 against 0.184
    assert pytest.approx(0.1838, abs=1e-4) == KL_PQ
    assert pytest.approx(0.1921, abs=1e-4) == KL_QP
    for kind in ("k1", "k3"):
        value, _ = expected_kl(kind, P, importance=False)
        assert value == pytest.approx(KL_PQ, abs=1e-9)


def test_k3_is_biased_for_samples_of_another_policy_and_importance_removes_it() -> None:  # B080
    older = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    biased, _ = expected_kl("k3", older, importance=False)
    assert abs(biased - KL_PQ) > 0.01
    for kind in ("k1", "k3"):
        value, gradient = expected_kl(kind, older, importance=True)
        assert value == pytest.approx(KL_PQ, abs=1e-9)
        torch.testing.assert_close(gradient, exact_kl_gradient())


def test_k1_without_importance_has_no_gradient_on_policy() -> None:
    _, gradient = expected_kl("k1", P, importance=False)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-9, rtol=0)


def test_k2_has_the_exact_gradient_on_policy() -> None:
    _, gradient = expected_kl("k2", P, importance=False)
    torch.testing.assert_close(gradient, exact_kl_gradient())


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_a_token_that_was_unlearnt_does_not_outweigh_the_step(kind: str) -> None:
    logprobs = torch.tensor([-30.0, -1.0], dtype=torch.float64, requires_grad=True)
    inputs = LossInputs(
        logprobs=logprobs,
        anchor=logprobs.detach(),
        behaviour=logprobs.detach(),
        advantages=torch.zeros(2),
        weights=torch.ones(2),
        reference=torch.tensor([-0.1, -1.5], dtype=torch.float64),
    )
    config = LossConfig(kl_coefficient=1.0, kl_kind=kind)  # type: ignore[arg-type]
    terms = kl_terms(inputs, config)
    terms.sum().backward()
    assert logprobs.grad is not None
    assert abs(terms[0].item()) == 10.0
    assert float(logprobs.grad[0]) == 0.0
    assert float(logprobs.grad[1]) != 0.0


def test_a_correction_changes_no_kl_and_no_entropy_term() -> None:
    tokens = draw_tokens(5)
    zero = numpy_losses.Tokens(**(vars(tokens) | {"a": np.zeros(TOKENS)}))
    losses = [
        run(as_inputs(zero), LossConfig(correction=c, kl_coefficient=0.2, entropy_coefficient=0.1))
        for c in ("none", "tis", "icepop")
    ]
    for loss, grad in losses[1:]:
        assert loss == losses[0][0]
        assert torch.equal(grad, losses[0][1])


def test_metrics_say_how_much_was_clipped_and_corrected() -> None:
    tokens = draw_tokens(6, 4)
    inputs = as_inputs(
        numpy_losses.Tokens(
            **vars(tokens)
            | {
                "now": np.log([1.5, 0.5, 1.0, 1.0]) - 1.0,
                "old": np.full(4, -1.0),
                "mu": np.array([-1.0, -1.0, -1.0 - math.log(4), -1.0]),
                "a": np.array([1.0, -1.0, 1.0, 1.0]),
                "w": np.full(4, 0.25),
            }
        )
    )
    _, metrics = policy_loss(inputs, LossConfig())
    means = {key: float(value) for key, value in metrics.means.items()}
    assert means["clip_high_fraction"] == 0.25
    assert means["clip_low_fraction"] == 0.25
    assert means["corrected_fraction"] == 0.25
    assert means["ratio_mean"] == pytest.approx(1.0)
    assert means["off_policy_ratio_mean"] == pytest.approx(7 / 4)
    assert float(metrics.maxima["ratio_max"]) == pytest.approx(1.5)
    assert float(metrics.maxima["off_policy_ratio_max"]) == pytest.approx(4.0)


@pytest.mark.parametrize("correction", ["bypass", "tis", "icepop", "decoupled"])
def test_a_correction_without_behaviour_logprobs_is_refused(correction: Any) -> None:  # B082
    tokens = as_inputs(draw_tokens(0))
    without = LossInputs(tokens.logprobs, tokens.anchor, None, tokens.advantages, tokens.weights)
    with pytest.raises(ConfigError, match=r"trainer\.loss\.correction"):
        policy_loss(without, LossConfig(correction=correction))


def test_no_correction_works_without_behaviour_logprobs() -> None:
    tokens = as_inputs(draw_tokens(0))
    without = LossInputs(tokens.logprobs, tokens.anchor, None, tokens.advantages, tokens.weights)
    loss, _ = policy_loss(without, LossConfig(correction="none"))
    assert torch.isfinite(loss)


def test_a_kl_term_without_a_reference_is_refused() -> None:
    tokens = as_inputs(draw_tokens(0))
    without = LossInputs(
        tokens.logprobs, tokens.anchor, tokens.behaviour, tokens.advantages, tokens.weights
    )
    with pytest.raises(ConfigError, match="kl_coefficient"):
        policy_loss(without, LossConfig(kl_coefficient=0.1))
