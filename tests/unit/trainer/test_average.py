"""The teacher that follows the policy: its weights against a plain average, and its life."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from rejoinder.config import Config
from rejoinder.models.loading import load_version
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.torch_backend import TorchBackend

from .test_teacher import HINT, hinted, seen_gaps, start
from .test_torch_backend import take_step
from .tiny import answer_logprobs, load_plain, sample_turn, signalled

LORA = {"rank": 4, "alpha": 8.0}
DROPOUT = LORA | {"dropout": 0.2}
DECAY = 0.7
EMA = {"weights": "ema", "decay": DECAY}
Make = Callable[..., Config]
both = pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])


@pytest.fixture(scope="module")
def turns(model_path: Path) -> list[dict[str, Any]]:
    model = load_plain(model_path)
    return [
        sample_turn(model, 1.0 if seed % 2 else -1.0, tokens=4 + seed, seed=seed)
        for seed in range(4)
    ]


@pytest.fixture
def make_ema(make_config: Make) -> Make:
    """A configuration whose teacher is the average, with steps large enough to see."""

    def make(lora: Any = None, dtype: str = "float32", **changes: Any) -> Config:
        rate = 5e-3 if lora is None else 3e-2
        config = make_config(**{"lora": lora, "learning_rate": rate, "teacher": EMA} | changes)
        return config.model_copy(update={"model": config.model.model_copy(update={"dtype": dtype})})

    return make


def step_of(turns: Sequence[dict[str, Any]]) -> list[SignalledTurn]:
    return [hinted(turn, len(turns), reward=turn["reward"]) for turn in turns]


def trained(backend: TorchBackend) -> dict[str, Tensor]:
    parameters = backend._loaded()[0].parameters
    return {name: weight.detach().cpu().clone() for name, weight in parameters.items()}


def mean(backend: TorchBackend) -> dict[str, Tensor]:
    assert backend._teacher_average is not None
    return {name: weight.cpu().clone() for name, weight in backend._teacher_average.state().items()}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, weight in found.items():
        assert torch.equal(weight, expected[name]), name


def assert_moved(found: dict[str, Tensor], before: dict[str, Tensor]) -> None:
    assert any(not torch.equal(weight, before[name]) for name, weight in found.items())


def saved(backend: TorchBackend, root: Path) -> tuple[Path, Path]:
    """Write a version and its checkpoint, as the training loop does."""
    directories = root / "weights", root / "checkpoint"
    saves = backend.save_weights, backend.save_checkpoint
    for directory, save in zip(directories, saves, strict=True):
        directory.mkdir()
        save(directory)
    return directories


def resumed(config: Config, weights: Path | None, checkpoint: Path | None) -> TorchBackend:
    backend = TorchBackend(config, "distil_topk")
    backend.load(weights, checkpoint)
    return backend


@both
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_the_plain_average_of_all_weights_so_far(
    make_ema: Make, turns: list[dict[str, Any]], lora: Any, dtype: str
) -> None:
    """Written out as a sum over the steps, in float64; it begins at the first weights."""
    backend = start(make_ema(lora, dtype))
    seen = [trained(backend)]
    for number in range(1, 6):
        assert take_step(backend, step_of(turns), number).skipped is None
        seen.append(trained(backend))
    shares = [DECAY**5, *((1 - DECAY) * DECAY ** (5 - number) for number in range(1, 6))]
    assert sum(shares) == pytest.approx(1.0)
    for name, found in mean(backend).items():
        assert found.dtype is torch.float32
        weights = np.stack([one[name].numpy().astype(np.float64) for one in seen])
        expected = np.tensordot(shares, weights, axes=1)
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6, rtol=1e-5)
    assert_moved(mean(backend), seen[-1])


@both
def test_the_teacher_says_what_a_model_of_the_averaged_weights_says(
    make_ema: Make, turns: list[dict[str, Any]], model_path: Path, tmp_path: Path, lora: Any
) -> None:
    """Against transformers' own forward pass over the saved average, hint and all."""
    backend = start(make_ema(lora, loss={"distil": {"kind": "token"}}))
    for number in range(1, 4):
        take_step(backend, [signalled(turn, 4) for turn in turns], number)
    said: list[Tensor] = []
    plain = backend._loss

    def watch(inputs: Any, config: Any) -> Any:
        said.append(inputs.hinted.teacher[:, 0].cpu())
        return plain(inputs, config)

    backend._loss = watch
    for turn in turns:
        list(backend.accumulate([hinted(turn, 1)]))
    assert backend._teacher_average is not None
    backend._teacher_average.model.save(tmp_path, torch.float32)
    averaged = load_version(tmp_path, model_path, torch.float32, torch.device("cpu"))
    first = load_plain(model_path)
    for turn, found in zip(turns, said, strict=True):
        asked = [*turn["prompt"], *HINT], turn["answer"], turn["temperature"]
        with torch.no_grad():
            torch.testing.assert_close(found, answer_logprobs(averaged, *asked), atol=1e-4, rtol=0)
            assert float((found - answer_logprobs(first, *asked)).abs().max()) > 1e-2


@both
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_lags_between_the_start_weights_and_those_in_training(
    make_ema: Make, turns: list[dict[str, Any]], lora: Any, dtype: str
) -> None:
    """With an empty hint teacher and student differ, less than a frozen teacher does."""
    gaps = {}
    for weights in ("current", "ema", "frozen"):
        teacher = EMA if weights == "ema" else {"weights": weights}
        backend = start(make_ema(lora, dtype, teacher=teacher, loss={"distil": {"kind": "token"}}))
        for number in range(1, 5):
            take_step(backend, [signalled(turn, 4) for turn in turns], number)
        seen = seen_gaps(backend, [hinted(turn, 4, ((),)) for turn in turns])
        gaps[weights] = float(torch.stack(seen).mean())
    assert gaps["current"] < (1e-4 if dtype == "float32" else 0.05)
    assert 2 * gaps["current"] < gaps["ema"] < 0.9 * gaps["frozen"]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_below_an_adapter_the_frozen_weights_are_there_once(
    make_ema: Make, checkpointing: bool
) -> None:
    backend = start(make_ema(LORA, gradient_checkpointing=checkpointing))
    assert backend._teacher_average is not None
    model, twin = backend._loaded()[0], backend._teacher_average.model
    own = {weight.data_ptr() for weight in model.parameters.values()}
    assert not own & {weight.data_ptr() for weight in twin.parameters.values()}
    assert twin.head.data_ptr() == model.head.data_ptr()
    below = {id(weight) for weight in model._model.parameters() if not weight.requires_grad}
    assert below
    assert below <= {id(weight) for weight in twin._model.parameters()}


@both
def test_a_skipped_step_changes_nothing(
    make_ema: Make, turns: list[dict[str, Any]], lora: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = start(make_ema(lora))
    take_step(backend, step_of(turns), 1)
    before = mean(backend)
    broken = step_of(turns)
    broken[0].signal.advantages[0] = math.inf
    assert take_step(backend, broken, 2).skipped == "non_finite_loss"
    assert_same(mean(backend), before)
    with monkeypatch.context() as patched:
        patched.setattr(
            torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(math.nan), raising=True
        )
        assert take_step(backend, step_of(turns), 2).skipped == "non_finite_gradient"
    assert_same(mean(backend), before)
    take_step(backend, step_of(turns), 2)
    assert_moved(mean(backend), before)


def test_a_gradient_that_is_given_up_changes_nothing(
    make_ema: Make, turns: list[dict[str, Any]]
) -> None:
    backend = start(make_ema())
    take_step(backend, step_of(turns), 1)
    before = mean(backend)
    list(backend.accumulate(step_of(turns)))
    backend.discard()
    assert_same(mean(backend), before)


@pytest.mark.parametrize("lora", [None, LORA, DROPOUT], ids=["full", "lora", "dropout"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resumed_run_has_the_same_teacher_and_takes_the_same_steps(
    make_ema: Make, turns: list[dict[str, Any]], tmp_path: Path, lora: Any, dtype: str
) -> None:
    config = make_ema(lora, dtype)
    backend = start(config)
    for number in (1, 2, 3):
        take_step(backend, step_of(turns), number)
    files, kept = saved(backend, tmp_path), mean(backend)

    def go_on(one: TorchBackend) -> TorchBackend:
        for number in (4, 5):
            assert take_step(one, step_of(turns), number).skipped is None
        return one

    go_on(backend)  # first: dropout draws from the random state that loading restores
    again = resumed(config, *files)
    assert_same(mean(again), kept)
    assert_moved(kept, trained(again))
    go_on(again)
    assert_same(trained(again), trained(backend))
    assert_same(mean(again), mean(backend))


@both
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_version_without_a_checkpoint_is_where_it_begins(
    make_ema: Make, turns: list[dict[str, Any]], tmp_path: Path, lora: Any, dtype: str
) -> None:
    """As after a rollback, also in the process that held another average before."""
    config = make_ema(lora, dtype)
    backend = start(config)
    first = trained(backend)
    assert_same(mean(backend), first)
    for number in (1, 2):
        take_step(backend, step_of(turns), number)
    weights, _ = saved(backend, tmp_path)
    take_step(backend, step_of(turns), 3)
    for one in (backend, TorchBackend(config, "distil_topk")):
        one.load(weights, None)
        assert_same(mean(one), trained(one))
        assert_moved(mean(one), first)
        one.load(None, None)
        assert_same(mean(one), first)


@both
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_after_another_kind_of_teacher_it_begins_at_the_weights_of_the_checkpoint(
    make_ema: Make, turns: list[dict[str, Any]], tmp_path: Path, lora: Any, dtype: str
) -> None:
    """In bfloat16 that is the fp32 weights, which the version's own files have rounded."""
    backend = start(make_ema(lora, dtype, teacher={"weights": "frozen"}))
    for number in (1, 2):
        take_step(backend, step_of(turns), number)
    again = resumed(make_ema(lora, dtype), *saved(backend, tmp_path))
    assert_same(mean(again), trained(backend))


def test_other_teachers_leave_the_average_of_a_checkpoint_aside(
    make_ema: Make, turns: list[dict[str, Any]], tmp_path: Path
) -> None:
    backend = start(make_ema())
    take_step(backend, step_of(turns), 1)
    again = resumed(make_ema(teacher={"weights": "current"}), *saved(backend, tmp_path))
    assert_same(trained(again), trained(backend))
    assert again._teacher_average is None


@pytest.mark.parametrize(
    ("loss", "weights", "is_kept"),
    [
        ("distil_topk", "ema", True),
        ("policy", "ema", False),
        ("distil_topk", "current", False),
        ("distil_topk", "frozen", False),
    ],
)
def test_only_a_run_that_asks_it_pays_for_it(
    make_ema: Make,
    turns: list[dict[str, Any]],
    tmp_path: Path,
    loss: str,
    weights: str,
    is_kept: bool,
) -> None:
    backend = TorchBackend(make_ema(teacher={"weights": weights}), loss)
    backend.load(None, None)
    take_step(backend, [signalled(turn, 4) for turn in turns])
    _, checkpoint = saved(backend, tmp_path)
    names = load_file(checkpoint / "training.safetensors")
    assert any(name.startswith("average/") for name in names) is is_kept
