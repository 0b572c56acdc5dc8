"""Distillation losses against an independent implementation, exact values, and invariances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rejoinder.config import DistilConfig, LossConfig
from rejoinder.trainer.distil import candidates, with_tail
from rejoinder.trainer.loss_registry import DISTILLING
from rejoinder.trainer.losses import Hinted, LossInputs, policy_loss

from . import numpy_distil

POSITIONS, TOKENS, VOCABULARY = 12, 4, 30

CONFIGS = [
    LossConfig(distil=DistilConfig(kind="topk")),
    LossConfig(distil=DistilConfig(kind="topk", clip=0.3)),
    LossConfig(distil=DistilConfig(kind="tail")),
    *(LossConfig(distil=DistilConfig(kind="jsd", alpha=alpha)) for alpha in (0.0, 0.3, 0.5, 1.0)),
]


def name(config: LossConfig) -> str:
    return f"{config.distil.kind},{config.distil.clip},{config.distil.alpha}"


def rows(seed: int, apart: float = 0.8) -> numpy_distil.Rows:
    """Four tokens each of whole distributions, so that something is left for the others."""
    random = np.random.default_rng(seed)

    def some(logits: np.ndarray) -> np.ndarray:
        whole = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return whole[:, :TOKENS]

    student = random.normal(0, 1.5, (POSITIONS, VOCABULARY))
    old = student + random.normal(0, 0.1, student.shape)
    teacher = student + random.normal(0, apart, student.shape)
    weights = random.dirichlet(np.ones(POSITIONS)) * random.choice([0.0, 1.0, 2.0], POSITIONS)
    return numpy_distil.Rows(some(student), some(old), some(teacher), weights)


def inputs(
    found: numpy_distil.Rows, *, hint_weights: Tensor | None = None, advantage: float = 0.0
) -> tuple[LossInputs, Tensor]:
    """Return inputs whose verdicts say nothing by default, and the leaf [N, K] of the student."""
    student = torch.from_numpy(found.student.copy()).requires_grad_()
    old, teacher = torch.from_numpy(found.old.copy()), torch.from_numpy(found.teacher.copy())
    ones = torch.ones(POSITIONS, dtype=torch.float64)
    whole = LossInputs(
        logprobs=student[:, 0],
        anchor=old[:, 0],
        behaviour=old[:, 0],
        advantages=advantage * ones,
        weights=torch.from_numpy(found.weights.copy()),
        hinted=Hinted(ones if hint_weights is None else hint_weights, student, old, teacher),
    )
    return whole, student


def run(found: numpy_distil.Rows, config: LossConfig) -> tuple[float, np.ndarray]:
    whole, student = inputs(found)
    loss, _ = DISTILLING[f"distil_{config.distil.kind}"](whole, config)
    loss.backward()
    assert student.grad is not None
    return loss.item(), student.grad.numpy()


@pytest.mark.parametrize("config", CONFIGS, ids=name)
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_are_those_of_the_formulas(config: LossConfig, seed: int) -> None:
    found = rows(seed)
    loss, grad = run(found, config)
    assert loss == pytest.approx(numpy_distil.loss(found, config), abs=1e-10)
    np.testing.assert_allclose(grad, numpy_distil.gradient(found, config), atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), which=st.sampled_from(CONFIGS), apart=st.floats(0.01, 4.0))
def test_loss_is_that_of_the_formulas_for_any_tokens(
    seed: int, which: LossConfig, apart: float
) -> None:
    found = rows(seed, apart)
    assert run(found, which)[0] == pytest.approx(numpy_distil.loss(found, which), abs=1e-9)


@pytest.mark.parametrize("config", CONFIGS, ids=name)
def test_a_teacher_that_says_the_same_teaches_nothing(config: LossConfig) -> None:
    found = rows(1)
    same = replace(found, old=found.student, teacher=found.student)
    loss, grad = run(same, config)
    assert loss == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(grad, 0.0, atol=1e-8)


@pytest.mark.parametrize("config", [*CONFIGS, LossConfig(distil=DistilConfig(kind="token"))])
def test_without_hints_it_is_the_policy_loss_alone(config: LossConfig) -> None:
    none = torch.zeros(POSITIONS, dtype=torch.float64)
    whole, student = inputs(rows(2), hint_weights=none, advantage=1.0)
    loss, metrics = DISTILLING[f"distil_{config.distil.kind}"](whole, config)
    loss.backward()
    plain, leaf = inputs(rows(2), advantage=1.0)
    expected, _ = policy_loss(plain, config)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-15)
    assert torch.equal(student.grad, leaf.grad)  # type: ignore[arg-type]
    assert metrics.means["hinted_fraction"].item() == 0.0


@pytest.mark.parametrize("kind", ["topk", "tail", "jsd"])
def test_verdicts_and_hints_add_up(kind: str) -> None:
    config = LossConfig(distil=DistilConfig(kind=kind))  # type: ignore[arg-type]
    found = rows(3)
    loss, metrics = DISTILLING[f"distil_{kind}"](inputs(found, advantage=-1.0)[0], config)
    by_verdict, _ = policy_loss(inputs(found, advantage=-1.0)[0], config)
    expected = by_verdict.item() + numpy_distil.loss(found, config)
    assert loss.item() == pytest.approx(expected, abs=1e-10)
    assert metrics.means["loss"].item() == pytest.approx(expected, abs=1e-10)


def test_the_sampled_token_s_gain_is_what_the_teacher_says_more_clipped() -> None:
    config = LossConfig(distil=DistilConfig(kind="token"))
    found = rows(4)
    far = replace(
        found, teacher=found.teacher - np.where(np.arange(POSITIONS) < 3, 9.0, 0.0)[:, None]
    )
    whole, _ = inputs(far, advantage=0.5)
    loss, metrics = DISTILLING["distil_token"](whole, config)
    gain = np.clip((far.teacher - far.old)[:, 0], -5.0, 5.0)
    plain, _ = inputs(far)
    expected, _ = policy_loss(replace(plain, advantages=torch.from_numpy(0.5 + gain)), config)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    clipped = found.weights[np.abs((far.teacher - far.old)[:, 0]) > 5].sum()
    assert metrics.means["distil_clip_fraction"].item() == pytest.approx(clipped)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), which=st.sampled_from(CONFIGS))
def test_the_order_of_positions_and_their_split_change_nothing(
    seed: int, which: LossConfig
) -> None:
    found = rows(seed)
    order = np.random.default_rng(seed).permutation(POSITIONS)

    def taken(places: np.ndarray) -> numpy_distil.Rows:
        fields = (found.student, found.old, found.teacher, found.weights)
        return numpy_distil.Rows(*(values[places] for values in fields))

    def loss_of(part: numpy_distil.Rows) -> float:
        whole, _ = inputs(part) if len(part.weights) == POSITIONS else _short(part)
        return DISTILLING[f"distil_{which.distil.kind}"](whole, which)[0].item()

    expected = loss_of(found)
    assert loss_of(taken(order)) == pytest.approx(expected, abs=1e-12)
    halves = loss_of(taken(order[:5])) + loss_of(taken(order[5:]))
    assert halves == pytest.approx(expected, abs=1e-12)


def _short(part: numpy_distil.Rows) -> tuple[LossInputs, Tensor]:
    student = torch.from_numpy(part.student.copy()).requires_grad_()
    old = torch.from_numpy(part.old)
    ones = torch.ones(len(part.weights), dtype=torch.float64)
    hinted = Hinted(ones, student, old, torch.from_numpy(part.teacher))
    weights = torch.from_numpy(part.weights)
    return LossInputs(
        student[:, 0], old[:, 0], old[:, 0], 0 * ones, weights, hinted=hinted
    ), student


def test_all_bins_together_have_everything() -> None:
    found = torch.from_numpy(rows(5).student)
    whole = with_tail(found)
    torch.testing.assert_close(whole.exp().sum(-1), torch.ones(POSITIONS, dtype=torch.float64))


def test_tokens_that_have_nearly_everything_leave_a_finite_rest() -> None:
    certain = torch.tensor([[0.0, -40.0], [1e-6, -50.0]], requires_grad=True)
    whole = with_tail(certain)
    assert whole.isfinite().all()
    whole.sum().backward()
    assert certain.grad is not None
    assert certain.grad.isfinite().all()


@pytest.mark.parametrize(
    ("config", "whose", "count"),
    [
        (DistilConfig(kind="token"), "sampled", 1),
        (DistilConfig(kind="topk"), "student", 4),
        (DistilConfig(kind="topk", top=8), "student", 8),
        (DistilConfig(kind="tail"), "teacher", 50),
        (DistilConfig(kind="jsd"), "student", 100),
        (DistilConfig(kind="jsd", alpha=0.0), "teacher", 100),
    ],
)
def test_each_kind_names_the_tokens_it_compares(
    config: DistilConfig, whose: str, count: int
) -> None:
    found = candidates(LossConfig(distil=config))
    assert (found.whose, found.count) == (whose, count)


@pytest.mark.parametrize(
    ("distil", "least", "most"),
    [
        (DistilConfig(kind="jsd", alpha=0.0), 0.9, 1.0),
        (DistilConfig(kind="jsd"), 0.0, 0.02),
        (DistilConfig(kind="tail"), 0.0, 0.02),
        (DistilConfig(kind="topk"), 0.0, 0.02),
    ],
    ids=["forward", "jsd", "tail", "topk"],
)
def test_only_forward_kl_raises_what_the_student_finds_unlikely(
    distil: DistilConfig, least: float, most: float
) -> None:
    config = LossConfig(distil=distil)
    logits = torch.full((1, VOCABULARY), -7.0, dtype=torch.float64)
    logits[0, :3] = 0.0
    end = VOCABULARY - 1  # probability 0.0003 for the student, 0.97 for the teacher
    told = torch.full((1, VOCABULARY), 0.03 / (VOCABULARY - 1), dtype=torch.float64)
    told[0, end] = 0.97
    leaf = logits.clone().requires_grad_()
    student, teacher = leaf.log_softmax(-1), told.log()
    whose, count = candidates(LossConfig(distil=distil)).whose, TOKENS
    likeliest = (teacher if whose == "teacher" else student).topk(count).indices
    own = student.gather(-1, likeliest)
    one = torch.ones(1, dtype=torch.float64)
    loss, _ = DISTILLING[f"distil_{distil.kind}"](
        LossInputs(
            logprobs=student[:, 0],
            anchor=student[:, 0].detach(),
            behaviour=student[:, 0].detach(),
            advantages=0 * one,
            weights=one,
            hinted=Hinted(one, own, own.detach(), teacher.gather(-1, likeliest)),
        ),
        config,
    )
    loss.backward()
    assert leaf.grad is not None
    raised = -float(leaf.grad[0, end])
    assert least <= raised <= most
