"""The teacher in the backend, on a tiny random model: against transformers' own forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rejoinder.algorithms.base import TokenSignal
from rejoinder.config import Config
from rejoinder.errors import ConfigError
from rejoinder.models.loading import load_version
from rejoinder.trainer import teacher, torch_backend
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.model import load_frozen
from rejoinder.trainer.torch_backend import TorchBackend

from .test_torch_backend import gradients, take_step
from .tiny import VOCABULARY, answer_logprobs, load_plain, sample_turn, signalled

LORA = {"rank": 4, "alpha": 8.0}
KINDS = ("topk", "token", "tail", "jsd")
HINT = [50, 51, 52]
OTHER = [9, 8, 7, 6]
Make = Callable[..., Config]


def start(config: Config) -> TorchBackend:
    backend = TorchBackend(config, f"distil_{config.trainer.loss.distil.kind}")
    backend.load(None, None)
    return backend


@pytest.fixture(scope="module")
def turns(model_path: Path) -> list[dict[str, Any]]:
    model = load_plain(model_path)
    return [
        sample_turn(
            model,
            1.0 if seed % 2 else -1.0,
            prompt=tuple(range(1, 3 + seed)),
            tokens=3 + seed,
            temperature=(0.7, 1.0)[seed % 2],
            seed=seed,
        )
        for seed in range(5)
    ]


def hinted(
    turn: dict[str, Any],
    of: int,
    hints: Sequence[Sequence[int]] = (HINT,),
    *,
    reward: float = 0.0,
    weight: float = 1.0,
) -> SignalledTurn:
    """One of ``of`` turns whose teacher has each of the hints at the end of its prompt."""
    tokens = len(turn["answer"])
    signal = TokenSignal(
        np.full(tokens, reward, dtype=np.float32), np.ones(tokens, dtype=np.bool_), weight
    )
    prompts = tuple([*turn["prompt"], *hint] for hint in hints)
    return signalled(turn, of, signal=signal, teacher_prompts=prompts)


def all_logprobs(
    model: Any, prompt: Sequence[int], answer: Sequence[int], temperature: float
) -> Tensor:
    """[T, V] by the model's own forward pass, one sequence, all logits."""
    ids = torch.tensor([[*prompt, *answer]])
    return (model(ids).logits[0, len(prompt) - 1 : -1].float() / temperature).log_softmax(-1)


def plain_topk(student: Tensor, teacher: Tensor, clip: float = 1.0) -> Tensor:
    """The sum over four likeliest tokens at each position, whose ratio is 1 in value."""
    old = student.detach()
    ids = old.topk(4, dim=-1).indices
    gain = (teacher - old).gather(-1, ids).clamp(-clip, clip) * old.gather(-1, ids).softmax(-1)
    return -(gain * (student.gather(-1, ids) - old.gather(-1, ids)).exp()).sum(-1)


def test_the_gradient_is_that_of_the_plain_formula(
    make_config: Make, turns: list[dict[str, Any]], model_path: Path
) -> None:
    """Hinted and other turns side by side, one of them with a verdict as well."""
    step = [hinted(turns[0], 3), hinted(turns[1], 3, reward=1.0), signalled(turns[2], 3)]
    found = gradients(start(make_config()), step)
    model, informed = load_plain(model_path), load_plain(model_path)
    total = torch.zeros(())
    for turn, has_hint, reward in (
        (turns[0], True, 0.0), (turns[1], True, 1.0), (turns[2], False, turns[2]["reward"])
    ):  # fmt: skip
        student = all_logprobs(model, turn["prompt"], turn["answer"], turn["temperature"])
        own = student.gather(-1, torch.tensor(turn["answer"])[:, None])[:, 0]
        terms = -reward * (own - own.detach()).exp()
        if has_hint:
            with torch.no_grad():
                told = all_logprobs(
                    informed, [*turn["prompt"], *HINT], turn["answer"], turn["temperature"]
                )
            terms = terms + plain_topk(student, told)
        total = total + terms.mean() / 3
    total.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, atol=2e-6, rtol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["frozen", "current", "ema"])
def test_a_hint_that_changes_nothing_teaches_nothing(
    make_config: Make, turns: list[dict[str, Any]], kind: str, weights: str
) -> None:
    """Same weights, empty hint: teacher and student agree to rounding, at every token."""
    config = make_config(loss={"distil": {"kind": kind}}, teacher={"weights": weights})
    backend = start(config)
    for grad in gradients(backend, [hinted(turn, 5, ((),)) for turn in turns]).values():
        assert float(grad.abs().max()) < 1e-5


def seen_gaps(backend: TorchBackend, step: Sequence[SignalledTurn]) -> list[Tensor]:
    """Return |l_T - l_old| of each token that the loss gets to see."""
    seen: list[Tensor] = []
    plain = backend._loss

    def watch(inputs: Any, config: Any) -> Any:
        seen.extend((inputs.hinted.teacher - inputs.hinted.anchor).abs().flatten())
        return plain(inputs, config)

    backend._loss = watch
    gradients(backend, step)
    return seen


def test_teacher_and_student_agree_at_each_token_when_nothing_differs(
    make_config: Make, turns: list[dict[str, Any]]
) -> None:
    backend = start(make_config(loss={"distil": {"kind": "token"}}))
    gaps = seen_gaps(backend, [hinted(turn, 5, ((),)) for turn in turns])
    assert max(map(float, gaps)) < 1e-4
    assert len(gaps) == sum(len(turn["answer"]) for turn in turns)


@pytest.mark.parametrize("kind", KINDS)
def test_in_bfloat16_a_frozen_teacher_says_what_the_same_weights_say_in_training(
    make_config: Make, turns: list[dict[str, Any]], kind: str
) -> None:
    """Regression: it was rounded to bfloat16 between its layers and at its head, by 0.05."""
    config = make_config(loss={"distil": {"kind": kind}}, micro_batch_tokens=10**4)
    half = config.model.model_copy(update={"dtype": "bfloat16"})
    backend = start(config.model_copy(update={"model": half}))
    gaps = seen_gaps(backend, [hinted(turn, 5, ((),)) for turn in turns])
    assert max(map(float, gaps)) < 1e-5


def test_a_frozen_model_is_held_in_bfloat16_but_for_what_autocast_leaves_whole(
    model_path: Path,
) -> None:
    model = load_frozen(model_path, torch.bfloat16, torch.device("cpu"))._model
    formats = {name: weight.dtype for name, weight in model.named_parameters()}
    whole = {name for name, dtype in formats.items() if dtype is torch.float32}
    assert {name for name in formats if "proj" in name}.isdisjoint(whole)
    assert {"model.embed_tokens.weight", "model.norm.weight"} <= whole


def test_a_start_teacher_that_differs_from_the_weights_in_training_is_refused(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = torch_backend.load_frozen

    def off(*args: Any) -> Any:
        frozen = plain(*args)
        with torch.no_grad():
            frozen.head.mul_(1.01)
        return frozen

    monkeypatch.setattr(torch_backend, "load_frozen", off)
    with pytest.raises(ConfigError, match="teacher and student differ"):
        start(make_config())


def test_a_model_whose_teacher_says_something_else_is_refused(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = teacher.Teacher.score

    def off(*args: Any) -> tuple[Tensor, Tensor]:
        ids, told = plain(*args)
        return ids, told + 1e-3

    monkeypatch.setattr(teacher.Teacher, "score", off)
    with pytest.raises(ConfigError, match=r"teacher and student differ by 0\.001"):
        start(make_config())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("choice", ["overlap", "token_overlap", "longest"])
def test_packing_order_and_micro_batches_change_nothing(
    make_config: Make, turns: list[dict[str, Any]], kind: str, choice: str
) -> None:
    hints: list[list[Sequence[int]]] = [[HINT], [OTHER, HINT], [], [HINT, OTHER], [OTHER]]
    step = [
        hinted(turn, 5, own, reward=turn["reward"]) if own else signalled(turn, 5)
        for turn, own in zip(turns, hints, strict=True)
    ]
    settings = {"loss": {"distil": {"kind": kind}}, "teacher": {"choice": choice}}
    whole = gradients(start(make_config(micro_batch_tokens=10**4, **settings)), step)
    for tokens, order in ((64, step), (64, step[::-1]), (10**4, step[::-1])):
        parts = gradients(start(make_config(micro_batch_tokens=tokens, **settings)), order)
        for name, grad in parts.items():
            torch.testing.assert_close(grad, whole[name], atol=2e-6, rtol=1e-3)


@pytest.mark.parametrize("lora", [None, {"rank": 8, "alpha": 32.0}], ids=["full", "lora"])
@pytest.mark.parametrize(
    "distil",
    [{"kind": "topk"}, {"kind": "tail"}, {"kind": "jsd"}, {"kind": "jsd", "alpha": 0.0, "top": 3}],
    ids=["topk", "tail", "jsd", "forward"],
)
def test_steps_bring_the_student_to_what_the_teacher_says(
    make_config: Make,
    turns: list[dict[str, Any]],
    model_path: Path,
    tmp_path: Path,
    distil: dict[str, Any],
    lora: Any,
) -> None:
    rate = 2e-3 if lora is None else 2e-2
    config = make_config(lora=lora, learning_rate=rate, weight_decay=0.0, loss={"distil": distil})
    backend = start(config)
    before = distance(load_plain(model_path), load_plain(model_path), turns)
    for number in range(1, 9):
        assert take_step(backend, [hinted(turn, 5) for turn in turns], number).skipped is None
    backend.save_weights(tmp_path)
    after = load_version(tmp_path, model_path, torch.float32, torch.device("cpu"))
    assert distance(after, load_plain(model_path), turns) < 0.8 * before


def test_sampled_tokens_become_likelier_where_the_teacher_finds_them_so(
    make_config: Make, turns: list[dict[str, Any]], model_path: Path, tmp_path: Path
) -> None:
    config = make_config(learning_rate=2e-4, weight_decay=0.0, loss={"distil": {"kind": "token"}})
    backend = start(config)
    take_step(backend, [hinted(turn, 5) for turn in turns])
    backend.save_weights(tmp_path)
    before = load_plain(model_path)
    after = load_version(tmp_path, model_path, torch.float32, torch.device("cpu"))
    agreement = 0.0
    with torch.no_grad():
        for turn in turns:
            rest = (turn["answer"], turn["temperature"])
            own = answer_logprobs(before, turn["prompt"], *rest)
            gain = answer_logprobs(before, [*turn["prompt"], *HINT], *rest) - own
            change = answer_logprobs(after, turn["prompt"], *rest) - own
            agreement += float((gain.clamp(-5, 5) * change).sum())
    assert agreement > 0


@torch.no_grad()
def distance(student: Any, informed: Any, turns: Sequence[dict[str, Any]]) -> float:
    """Mean |l_T - l| over the student's four likeliest tokens and the sampled one."""
    found = []
    for turn in turns:
        own = all_logprobs(student, turn["prompt"], turn["answer"], turn["temperature"])
        told = all_logprobs(informed, [*turn["prompt"], *HINT], turn["answer"], turn["temperature"])
        likely = own.topk(4, dim=-1).indices
        found.append((told - own).gather(-1, likely).abs().mean())
    return float(torch.stack(found).mean())


def test_the_hint_is_chosen_whose_likely_tokens_are_the_student_s(
    make_config: Make, turns: list[dict[str, Any]], model_path: Path
) -> None:
    model = load_plain(model_path)
    turn = turns[4]

    @torch.no_grad()
    def shared(hint: Sequence[int]) -> int:
        own = all_logprobs(model, turn["prompt"], turn["answer"], turn["temperature"])
        told = all_logprobs(model, [*turn["prompt"], *hint], turn["answer"], turn["temperature"])
        pairs = zip(own.topk(4).indices.tolist(), told.topk(4).indices.tolist(), strict=True)
        return sum(len(set(mine) & set(theirs)) for mine, theirs in pairs)

    hints = sorted(([HINT, OTHER, [60, 59]]), key=shared)
    assert shared(hints[0]) < shared(hints[-1])
    for order in (hints, hints[::-1]):
        several = gradients(start(make_config()), [hinted(turn, 1, order)])
        alone = gradients(start(make_config()), [hinted(turn, 1, hints[-1:])])
        for name, grad in several.items():
            torch.testing.assert_close(grad, alone[name], atol=1e-7, rtol=1e-4)


def test_the_longest_hint_is_the_first_prompt(
    make_config: Make, turns: list[dict[str, Any]]
) -> None:
    config = make_config(teacher={"choice": "longest"})
    several = gradients(start(config), [hinted(turns[3], 1, (OTHER, HINT))])
    alone = gradients(start(config), [hinted(turns[3], 1, (OTHER,))])
    for name, grad in several.items():
        torch.testing.assert_close(grad, alone[name], atol=1e-7, rtol=1e-4)


def test_more_tokens_than_the_vocabulary_has_are_all_of_them(
    make_config: Make, turns: list[dict[str, Any]]
) -> None:
    config = make_config(loss={"distil": {"kind": "jsd", "top": VOCABULARY + 9}})
    figures = take_step(start(config), [hinted(turns[0], 1)])
    assert figures.skipped is None
    assert figures.metrics["distil_loss"] > 0


def test_a_frozen_teacher_stays_where_it_was_and_a_current_one_moves(
    make_config: Make, turns: list[dict[str, Any]]
) -> None:
    """With an empty hint, after some steps: the current one says what the student says."""
    gaps = {}
    for weights in ("frozen", "current"):
        config = make_config(
            learning_rate=5e-3, teacher={"weights": weights}, loss={"distil": {"kind": "token"}}
        )
        backend = start(config)
        for number in (1, 2):
            take_step(backend, [signalled(turn, 5) for turn in turns], number)
        gaps[weights] = max(map(float, seen_gaps(backend, [hinted(t, 5, ((),)) for t in turns])))
    assert gaps["current"] < 1e-4
    assert gaps["frozen"] > 0.01


def test_dropout_in_an_adapter_does_not_reach_teacher_or_anchor(
    make_config: Make, turns: list[dict[str, Any]]
) -> None:
    config = make_config(
        lora=LORA | {"dropout": 0.5}, learning_rate=2e-2, loss={"distil": {"kind": "token"}},
        teacher={"weights": "current"},
    )  # fmt: skip
    backend = start(config)
    take_step(backend, [hinted(turn, 5) for turn in turns])
    gaps = seen_gaps(backend, [hinted(turn, 5, ((),)) for turn in turns])
    assert max(map(float, gaps)) < 1e-4


def test_a_random_choice_follows_from_the_turn_alone(
    make_config: Make, turns: list[dict[str, Any]]
) -> None:
    settings = {"teacher": {"choice": "random"}}
    step = [hinted(turn, 5, (OTHER, HINT)) for turn in turns]
    whole = gradients(start(make_config(micro_batch_tokens=10**4, **settings)), step)
    parts = gradients(start(make_config(micro_batch_tokens=64, **settings)), step[::-1])
    for name, grad in parts.items():
        torch.testing.assert_close(grad, whole[name], atol=2e-6, rtol=1e-3)
    others = gradients(start(make_config(seed=1, **settings)), step)
    assert any(not torch.allclose(others[name], grad, atol=1e-5) for name, grad in whole.items())


def test_hints_of_many_turns_are_read_in_passes_of_the_student_s_size(
    make_config: Make, turns: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    plain = teacher.pack

    def watch(rows: Any, device: Any) -> Any:
        packed = plain(rows, device)
        sizes.append(packed.tokens)
        return packed

    monkeypatch.setattr(teacher, "pack", watch)
    long = [hinted(turn, 5, ([*HINT] * 12,)) for turn in turns]
    gradients(start(make_config(micro_batch_tokens=80)), long)
    assert max(sizes) <= 80


def test_figures_say_how_much_was_hinted(make_config: Make, turns: list[dict[str, Any]]) -> None:
    step = [hinted(turns[0], 2), signalled(turns[1], 2)]
    metrics = take_step(start(make_config()), step).metrics
    assert metrics["hinted_fraction"] == pytest.approx(0.5)
    assert 0 <= metrics["distil_clip_fraction"] <= 0.5


OUTSIDE = '''
from rejoinder.trainer.distil import Candidates, TeachingLoss
from rejoinder.trainer.losses import LossMetrics


def squared(inputs, config):
    """The squared distance of log-probabilities over the teacher's three likeliest tokens."""
    hinted = inputs.hinted
    terms = (hinted.student - hinted.teacher).square().sum(-1)
    loss = (terms * hinted.weights * inputs.weights).sum()
    return loss, LossMetrics({"loss": loss.detach()})


nearness = TeachingLoss(squared, lambda config: Candidates("teacher", 3))
'''


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package as pip would: a module beside its metadata with an entry point."""
    (tmp_path / "rejoinder_near.py").write_text(OUTSIDE)
    info = tmp_path / "rejoinder_near-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rejoinder-near\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[rejoinder.losses]\nnearness = rejoinder_near:nearness\nplain = rejoinder_near:squared\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("outside")
def test_a_loss_of_another_package_gets_a_teacher_for_the_tokens_it_names(
    make_config: Make, turns: list[dict[str, Any]], model_path: Path
) -> None:
    backend = TorchBackend(make_config(), "nearness", needs_teacher=True)
    backend.load(None, None)
    found = gradients(backend, [hinted(turns[0], 2), signalled(turns[1], 2)])
    model, informed = load_plain(model_path), load_plain(model_path)
    turn = turns[0]
    rest = (turn["answer"], turn["temperature"])
    with torch.no_grad():
        told, ids = all_logprobs(informed, [*turn["prompt"], *HINT], *rest).topk(3, dim=-1)
    own = all_logprobs(model, turn["prompt"], *rest).gather(-1, ids)
    (own - told).square().sum(-1).mean().div(2).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, atol=2e-6, rtol=1e-3)


@pytest.mark.usefixtures("outside")
def test_a_loss_that_names_no_tokens_is_refused_where_hints_teach(make_config: Make) -> None:
    with pytest.raises(ConfigError, match=r"'plain' compares with no teacher.*TeachingLoss"):
        TorchBackend(make_config(), "plain", needs_teacher=True)
