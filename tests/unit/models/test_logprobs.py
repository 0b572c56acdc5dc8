"""Chunked log-probabilities against the plain formula, and what they never hold in memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rejoinder.models.logprobs import chunked_logprobs, chunked_top

HIDDEN, VOCABULARY = 8, 61


class Case:
    """Random inputs; ``plain`` is the formula with all logits at once, in float64."""

    def __init__(self, tokens: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.hidden = torch.randn(tokens, HIDDEN, generator=draw).to(dtype)
        self.weight = torch.randn(VOCABULARY, HIDDEN, generator=draw).to(dtype)
        self.targets = torch.randint(VOCABULARY, (tokens,), generator=draw)
        self.temperature = 0.3 + torch.rand(tokens, generator=draw)
        self.by_logprob = torch.randn(tokens, generator=draw)
        self.by_entropy = torch.randn(tokens, generator=draw)

    def plain(self, hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        logits = hidden @ weight.T / self.temperature.to(hidden.dtype)[:, None]
        logprobs = logits.log_softmax(-1)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs.gather(-1, self.targets[:, None])[:, 0], entropy

    def gradients(
        self, chunk: int | None, *, with_entropy: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of a weighted sum; chunk None means the plain formula in float64."""
        dtype = torch.float64 if chunk is None else torch.float32
        hidden = self.hidden.clone().to(dtype).detach().requires_grad_()
        weight = self.weight.clone().to(dtype).detach().requires_grad_()
        if chunk is None:
            logprobs, entropy = self.plain(hidden, weight)
        else:
            logprobs, entropy = chunked_logprobs(
                hidden, weight, self.targets, self.temperature, chunk
            )
        total = (self.by_logprob.to(dtype) * logprobs).sum()
        if with_entropy:
            total = total + (self.by_entropy.to(dtype) * entropy).sum()
        total.backward()
        return hidden.grad, weight.grad


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_values_are_those_of_the_plain_formula(chunk: int) -> None:
    case = Case(7)
    logprobs, entropy = chunked_logprobs(
        case.hidden, case.weight, case.targets, case.temperature, chunk
    )
    expected = case.plain(case.hidden.double(), case.weight.double())
    torch.testing.assert_close(logprobs.double(), expected[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy.double(), expected[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("with_entropy", [False, True])
@pytest.mark.parametrize("chunk", [2, 7, 100])
def test_gradients_are_those_of_the_plain_formula(chunk: int, with_entropy: bool) -> None:
    case = Case(7)
    found = case.gradients(chunk, with_entropy=with_entropy)
    expected = case.gradients(None, with_entropy=with_entropy)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine is not None
        assert theirs is not None
        torch.testing.assert_close(mine.double(), theirs, atol=1e-5, rtol=1e-4)


@settings(max_examples=25, deadline=None)
@given(tokens=st.integers(1, 12), chunk=st.integers(1, 14), seed=st.integers(0, 2**31))
def test_the_chunk_size_changes_nothing(tokens: int, chunk: int, seed: int) -> None:
    case = Case(tokens, seed)
    for mine, theirs in zip(
        case.gradients(chunk, with_entropy=True),
        case.gradients(tokens, with_entropy=True),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-3)  # rounding alone


def test_an_entropy_alone_has_a_gradient() -> None:
    case = Case(5)
    hidden = case.hidden.clone().requires_grad_()
    _, entropy = chunked_logprobs(hidden, case.weight, case.targets, case.temperature, 2)
    entropy.sum().backward()
    theirs = case.hidden.double().requires_grad_()
    case.plain(theirs, case.weight.double())[1].sum().backward()
    assert hidden.grad is not None
    assert theirs.grad is not None
    torch.testing.assert_close(hidden.grad.double(), theirs.grad, atol=1e-5, rtol=1e-4)


def test_a_frozen_head_gets_no_gradient() -> None:
    case = Case(4)
    hidden = case.hidden.clone().requires_grad_()
    logprobs, _ = chunked_logprobs(hidden, case.weight, case.targets, case.temperature, 2)
    logprobs.sum().backward()
    assert hidden.grad is not None
    assert case.weight.grad is None


def test_no_tokens_give_empty_results_and_zero_gradients() -> None:
    case = Case(0)
    hidden, weight = case.gradients(4, with_entropy=True)
    assert hidden is not None
    assert hidden.shape == (0, HIDDEN)
    assert weight is not None
    assert not weight.any()


@pytest.mark.parametrize("head", [torch.bfloat16, torch.float32], ids=["bf16 head", "fp32 head"])
def test_logits_of_half_precision_inputs_are_not_rounded(head: torch.dtype) -> None:
    """Regression: logits in bfloat16 made a frozen teacher differ from its own weights by 0.03."""
    case = Case(6, dtype=torch.bfloat16)
    weight = case.weight.to(head)
    found, entropy = chunked_logprobs(case.hidden, weight, case.targets, case.temperature, 2)
    assert found.dtype == torch.float32
    expected, spread = case.plain(case.hidden.double(), weight.double())
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy.double(), spread, atol=1e-5, rtol=1e-5)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_products_of_bfloat16_are_added_up_in_fp32_without_a_copy_of_the_head() -> None:
    case = Case(6, dtype=torch.bfloat16)
    found, _ = chunked_logprobs(
        case.hidden.cuda(), case.weight.cuda(), case.targets.cuda(), case.temperature.cuda(), 2
    )
    expected, _ = case.plain(case.hidden.double(), case.weight.double())
    torch.testing.assert_close(found.double().cpu(), expected, atol=1e-4, rtol=1e-4)


def test_gradients_of_half_precision_inputs_have_their_format_and_direction() -> None:
    case = Case(6, dtype=torch.bfloat16)
    hidden = case.hidden.clone().requires_grad_()
    logprobs, _ = chunked_logprobs(hidden, case.weight, case.targets, case.temperature, 2)
    (case.by_logprob * logprobs).sum().backward()
    assert hidden.grad is not None
    assert hidden.grad.dtype == torch.bfloat16
    exact = case.hidden.double().requires_grad_()
    expected, _ = case.plain(exact, case.weight.double())
    (case.by_logprob.double() * expected).sum().backward()
    assert exact.grad is not None
    torch.testing.assert_close(hidden.grad.double(), exact.grad, atol=0.05, rtol=0.05)


def test_never_more_than_one_chunk_of_logits_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor that the function makes is recorded; none is tokens x vocabulary."""
    sizes: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor):
                sizes.append(out.numel())
            return out

    case = Case(60)
    with Watch():
        case.gradients(5, with_entropy=True)
    assert max(sizes) <= max(5 * VOCABULARY, HIDDEN * VOCABULARY, 60 * HIDDEN)


def test_several_targets_of_a_position_are_each_what_they_are_alone() -> None:
    case = Case(6)
    several = torch.stack((case.targets, (case.targets + 7) % VOCABULARY, case.targets), dim=1)
    weights = torch.linspace(-1.0, 1.0, 18).view(6, 3)
    found, plain = [], []
    for dtype in (torch.float32, torch.float64):
        hidden = case.hidden.clone().to(dtype).detach().requires_grad_()
        weight = case.weight.clone().to(dtype).detach().requires_grad_()
        if dtype is torch.float32:
            logprobs, _ = chunked_logprobs(hidden, weight, several, case.temperature, 4)
        else:
            logits = hidden @ weight.T / case.temperature.to(dtype)[:, None]
            logprobs = logits.log_softmax(-1).gather(-1, several)
        (logprobs * weights).sum().backward()
        (found if dtype is torch.float32 else plain).extend((logprobs, hidden.grad, weight.grad))
    for mine, theirs in zip(found, plain, strict=True):
        torch.testing.assert_close(mine.double(), theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_the_likeliest_tokens_are_those_of_all_logits_best_first(chunk: int) -> None:
    case = Case(7)
    found = chunked_top(case.hidden, case.weight, case.temperature, 5, chunk)
    assert torch.equal(found, (case.hidden @ case.weight.T).topk(5, dim=-1).indices)


def test_more_tokens_than_there_are_give_all_of_them() -> None:
    case = Case(2)
    found = chunked_top(case.hidden, case.weight, case.temperature, VOCABULARY + 50)
    assert sorted(found[0].tolist()) == list(range(VOCABULARY))
