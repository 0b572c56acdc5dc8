"""The PyTorch backend on a tiny random model: what a step does, and what it must not do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from rejoinder.config import Config, LoraConfig
from rejoinder.errors import ConfigError
from rejoinder.models.loading import load_version
from rejoinder.trainer import torch_backend
from rejoinder.trainer.base import SignalledTurn, StepFigures
from rejoinder.trainer.torch_backend import TorchBackend
from rejoinder.types import WeightsKind

from .tiny import answer_logprobs, load_plain, sample_turn, signalled

LORA = {"rank": 4, "alpha": 8.0}
Make = Callable[..., Config]


def start(config: Config) -> TorchBackend:
    backend = TorchBackend(config, "policy")
    backend.load(None, None)
    return backend


def take_step(backend: TorchBackend, turns: Sequence[SignalledTurn], step: int = 1) -> StepFigures:
    assert list(backend.accumulate(turns))[-1] == pytest.approx(1.0)
    return backend.apply(step)


def gradients(backend: TorchBackend, turns: Sequence[SignalledTurn]) -> dict[str, torch.Tensor]:
    for _ in backend.accumulate(turns):
        pass
    model, _ = backend._loaded()
    found = {
        name: w.grad.cpu().clone() for name, w in model.parameters.items() if w.grad is not None
    }
    backend.discard()
    return found


def saved(backend: TorchBackend, root: Path) -> tuple[Path, Path]:
    """Write a version and its checkpoint, as the training loop does."""
    weights, checkpoint = root / "weights", root / "checkpoint"
    for directory, save in (
        (weights, backend.save_weights),
        (checkpoint, backend.save_checkpoint),
    ):
        directory.mkdir()
        save(directory)
    return weights, checkpoint


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
        for seed in range(6)
    ]


def step_of(turns: Sequence[dict[str, Any]], **changes: Any) -> list[SignalledTurn]:
    return [signalled(turn, len(turns), **changes) for turn in turns]


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_two_steps_make_praised_answers_likelier_and_others_less(
    make_config: Make, turns: list[dict[str, Any]], model_path: Path, tmp_path: Path, lora: Any
) -> None:
    rate = 3e-3 if lora is None else 3e-2
    backend = start(make_config(lora=lora, learning_rate=rate, weight_decay=0.0))
    for step in (1, 2):
        assert take_step(backend, step_of(turns), step).skipped is None
    backend.save_weights(tmp_path)
    after = load_version(tmp_path, model_path, torch.float32, torch.device("cpu"))
    for turn in turns:
        with torch.no_grad():
            now = answer_logprobs(after, turn["prompt"], turn["answer"], turn["temperature"])
        change = float(now.sum()) - sum(turn["behaviour"])
        assert change * turn["reward"] > 0, turn


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_micro_batches_do_not_change_the_gradient(
    make_config: Make, turns: list[dict[str, Any]], lora: Any, checkpointing: bool
) -> None:
    step = step_of(turns)
    settings = {"lora": lora, "gradient_checkpointing": checkpointing}
    whole = gradients(start(make_config(micro_batch_tokens=10**4, **settings)), step)
    for tokens, order in ((64, step), (64, step[::-1]), (10**4, step[::-1])):
        parts = gradients(start(make_config(micro_batch_tokens=tokens, **settings)), order)
        assert parts.keys() == whole.keys()
        for name, grad in parts.items():
            torch.testing.assert_close(grad, whole[name], atol=1e-6, rtol=1e-4)


def test_the_gradient_is_that_of_the_plain_formula(
    make_config: Make, turns: list[dict[str, Any]], model_path: Path
) -> None:
    """Against transformers' own forward pass, one turn at a time, without packing or chunks."""
    found = gradients(start(make_config()), step_of(turns))
    model = load_plain(model_path)
    total = torch.zeros(())
    for turn in turns:
        now = answer_logprobs(model, turn["prompt"], turn["answer"], turn["temperature"])
        behaviour = torch.tensor(turn["behaviour"])
        weight = (now - behaviour).exp().clamp(max=2.0).detach()
        ratio = (now - now.detach()).exp()
        total = total - (turn["reward"] * weight * ratio).mean() / len(turns)
    total.backward()
    for name, parameter in model.named_parameters():
        if name in found:
            assert parameter.grad is not None
            torch.testing.assert_close(found[name], parameter.grad, atol=1e-6, rtol=1e-3)
    assert len(found) == sum(1 for _ in model.parameters())


def test_masked_tokens_have_no_influence(make_config: Make, turns: list[dict[str, Any]]) -> None:
    """Their advantages and behaviour may be anything; only the mask's tokens count."""
    backend = start(make_config())

    def with_mask(advantage: float, behaviour: float) -> list[SignalledTurn]:
        changed = []
        for turn in step_of(turns):
            turn.signal.mask[0] = False
            turn.signal.advantages[0] = advantage
            changed.append(
                SignalledTurn(
                    **{
                        **{name: getattr(turn, name) for name in turn.__slots__},
                        "behaviour": [behaviour, *turn.behaviour[1:]],
                    }
                )
            )
        return changed

    one, two = gradients(backend, with_mask(1.0, -1.0)), gradients(backend, with_mask(-5.0, -9.0))
    assert all(torch.equal(grad, two[name]) for name, grad in one.items())


def test_a_zero_signal_gives_a_zero_gradient(
    make_config: Make, turns: list[dict[str, Any]]
) -> None:
    quiet = [turn | {"reward": 0.0} for turn in turns]
    for grad in gradients(start(make_config()), step_of(quiet)).values():
        assert not grad.any()


def test_trainer_logprobs_are_those_the_turns_were_sampled_with(
    make_config: Make, turns: list[dict[str, Any]]
) -> None:  # rule 8
    figures = take_step(start(make_config()), step_of(turns))
    assert figures.metrics["logprob_difference_mean"] < 1e-5
    assert figures.metrics["logprob_difference_max"] < 1e-4
    assert figures.metrics["logprob_difference_tokens"] == sum(len(t["answer"]) for t in turns)


def test_turns_of_older_versions_stay_out_of_the_difference(
    make_config: Make, turns: list[dict[str, Any]]
) -> None:
    figures = take_step(start(make_config()), step_of(turns, is_current=False))
    assert figures.metrics["logprob_difference_tokens"] == 0
    assert "logprob_difference_mean" not in figures.metrics


def test_the_ratio_is_exactly_one_at_the_only_step_of_a_batch(
    make_config: Make, turns: list[dict[str, Any]]
) -> None:
    figures = take_step(start(make_config()), step_of(turns))
    assert figures.metrics["ratio_max"] == 1.0
    assert figures.metrics["clip_high_fraction"] == figures.metrics["clip_low_fraction"] == 0.0


def test_a_step_that_is_not_finite_leaves_the_weights_alone(
    make_config: Make, turns: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:  # B083
    backend = start(make_config())
    model, _ = backend._loaded()
    before = {name: weight.detach().clone() for name, weight in model.parameters.items()}
    broken = step_of(turns)
    broken[0].signal.advantages[0] = math.inf
    assert take_step(backend, broken).skipped == "non_finite_loss"
    assert all(torch.equal(weight, before[name]) for name, weight in model.parameters.items())
    assert take_step(backend, step_of(turns)).skipped is None


@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize("lora", [None, LORA, LORA | {"dropout": 0.2}], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resumed_run_takes_the_same_steps(
    make_config: Make,
    turns: list[dict[str, Any]],
    tmp_path: Path,
    lora: Any,
    dtype: str,
    average: float,
) -> None:
    """Weights, moments and random state: step 2 after a restart is step 2 without one."""
    plain = make_config(lora=lora, average=average)
    config = plain.model_copy(update={"model": plain.model.model_copy(update={"dtype": dtype})})
    backend = start(config)
    take_step(backend, step_of(turns), 1)
    weights, checkpoint = saved(backend, tmp_path)
    take_step(backend, step_of(turns), 2)

    resumed = TorchBackend(config, "policy")
    resumed.load(weights, checkpoint)
    take_step(resumed, step_of(turns), 2)
    expected = backend._loaded()[0].parameters
    for name, weight in resumed._loaded()[0].parameters.items():
        assert torch.equal(weight, expected[name]), name
    for one, directory in ((backend, "straight"), (resumed, "resumed")):
        (tmp_path / directory).mkdir()
        one.save_weights(tmp_path / directory)
    served = [
        load_file(*(tmp_path / name).glob("*.safetensors")) for name in ("straight", "resumed")
    ]
    assert served[0].keys() == served[1].keys()
    assert all(torch.equal(weight, served[1][name]) for name, weight in served[0].items())


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_a_version_that_was_chosen_trains_on_from_what_it_serves(
    make_config: Make, turns: list[dict[str, Any]], tmp_path: Path, lora: Any
) -> None:
    config = make_config(lora=lora, average=0.75, learning_rate=1e-2)
    backend = start(config)
    take_step(backend, step_of(turns), 1)
    weights, checkpoint = saved(backend, tmp_path)
    assert backend._served is not None
    expected = {
        False: backend._loaded()[0].master(),
        True: backend._served.model.master(),
    }
    for as_served, wanted in expected.items():
        again = TorchBackend(config, "policy")
        again.load(weights, checkpoint, as_served=as_served)
        found = again._loaded()[0].master()
        assert all(torch.equal(weight, wanted[name]) for name, weight in found.items())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_after_an_average_was_switched_off_nothing_is_compared_until_a_step_is_taken(
    make_config: Make, turns: list[dict[str, Any]], tmp_path: Path, dtype: str
) -> None:  # rule 8
    """Its head version holds the average, and other weights train."""
    plain = make_config(learning_rate=1e-2)
    model = plain.model.model_copy(update={"dtype": dtype})
    averaged = make_config(learning_rate=1e-2, average=0.75).model_copy(update={"model": model})
    backend = start(averaged)
    take_step(backend, step_of(turns), 1)
    weights, checkpoint = saved(backend, tmp_path)
    without = TorchBackend(plain.model_copy(update={"model": model}), "policy")
    without.load(weights, checkpoint)
    assert take_step(without, step_of(turns), 2).metrics["logprob_difference_tokens"] == 0
    assert take_step(without, step_of(turns), 3).metrics["logprob_difference_tokens"] > 0


@pytest.mark.parametrize(("before", "after"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_a_checkpoint_says_that_its_version_is_an_average_whatever_numbers_are_read_in(
    make_config: Make, turns: list[dict[str, Any]], tmp_path: Path, before: str, after: str
) -> None:
    def config(dtype: str, average: float) -> Config:
        made = make_config(learning_rate=1e-2, average=average)
        return made.model_copy(update={"model": made.model.model_copy(update={"dtype": dtype})})

    backend = start(config(before, 0.75))
    take_step(backend, step_of(turns), 1)
    weights, checkpoint = saved(backend, tmp_path)
    chosen = TorchBackend(config(after, 0.75), "policy")
    chosen.load(weights, checkpoint, as_served=True)
    served = dict(load_plain(weights).named_parameters())
    for name, weight in chosen._loaded()[0].master().items():
        torch.testing.assert_close(weight, served[name].float(), atol=0, rtol=0)
    without = TorchBackend(config(after, 0.0), "policy")
    without.load(weights, checkpoint)
    assert take_step(without, step_of(turns), 2).metrics["logprob_difference_tokens"] == 0


def test_a_damaged_checkpoint_is_refused_by_name(
    make_config: Make, turns: list[dict[str, Any]], tmp_path: Path
) -> None:
    backend = start(make_config())
    take_step(backend, step_of(turns), 1)
    weights, checkpoint = saved(backend, tmp_path)
    (file,) = checkpoint.iterdir()
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(ConfigError, match="cannot read the checkpoint"):
        TorchBackend(make_config(), "policy").load(weights, checkpoint)
    save_file({"optimizer/x": torch.zeros(1)}, file)
    with pytest.raises(ConfigError, match="is not whole"):
        TorchBackend(make_config(), "policy").load(weights, checkpoint)


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_versions_are_the_running_average_of_the_weights_in_training(
    make_config: Make, turns: list[dict[str, Any]], tmp_path: Path, lora: Any
) -> None:
    config = make_config(lora=lora, average=0.75, learning_rate=1e-2)
    backend = start(config)
    seen = [backend._loaded()[0].master()]
    seen[0] = {name: weight.clone() for name, weight in seen[0].items()}
    for step in (1, 2):
        take_step(backend, step_of(turns), step)
        trained = backend._loaded()[0].master()
        seen.append({name: weight.clone() for name, weight in trained.items()})
    backend.save_weights(tmp_path)
    served = TorchBackend(
        config.model_copy(update={"trainer": make_config(lora=lora).trainer}), "policy"
    )
    served.load(tmp_path, None)
    for name, found in served._loaded()[0].master().items():
        first, second, third = (one[name] for one in seen)
        expected = 0.75 * (0.75 * first + 0.25 * second) + 0.25 * third
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
        assert lora or not torch.equal(found, third)


@pytest.mark.parametrize("lora", [None, LORA | {"dropout": 0.5}], ids=["full", "dropout"])
def test_with_an_average_the_engine_is_compared_with_what_is_served(
    make_config: Make, turns: list[dict[str, Any]], lora: Any
) -> None:  # rule 8
    """The start weights are served until steps have moved their average; others train meanwhile."""
    still = start(make_config(lora=lora, average=1 - 1e-9, learning_rate=1e-2))
    take_step(still, step_of(turns), 1)
    figures = take_step(still, step_of(turns), 2)
    assert figures.metrics["logprob_difference_max"] < 1e-4
    assert figures.metrics["logprob_difference_tokens"] == sum(len(t["answer"]) for t in turns)
    newest = start(make_config(lora=lora, learning_rate=1e-2))
    take_step(newest, step_of(turns), 1)
    assert take_step(newest, step_of(turns), 2).metrics["logprob_difference_max"] > 1e-2


def test_of_long_turns_another_one_is_compared_each_time(
    make_config: Make, turns: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:  # rule 8
    monkeypatch.setattr(torch_backend, "_COMPARED_TOKENS", 1)
    backend = start(make_config(average=0.5, learning_rate=1e-9))
    steps = [take_step(backend, step_of(turns), number) for number in range(1, len(turns) + 1)]
    compared = [one.metrics["logprob_difference_tokens"] for one in steps]
    assert compared == [len(turn["answer"]) for turn in turns]
    assert max(one.metrics["logprob_difference_max"] for one in steps) < 1e-4


def test_saved_full_weights_are_a_plain_directory(
    make_config: Make, turns: list[dict[str, Any]], tmp_path: Path
) -> None:
    backend = start(make_config())
    take_step(backend, step_of(turns))
    backend.save_weights(tmp_path)
    plain = dict(load_plain(tmp_path).named_parameters())
    for name, weight in backend._loaded()[0].parameters.items():
        assert torch.equal(weight.cpu(), plain[name])


def test_a_saved_adapter_is_one_of_peft(
    make_config: Make, turns: list[dict[str, Any]], model_path: Path, tmp_path: Path
) -> None:
    backend = start(make_config(lora=LORA, learning_rate=1e-2))
    take_step(backend, step_of(turns))
    backend.save_weights(tmp_path)
    adapted = peft.PeftModel.from_pretrained(load_plain(model_path), tmp_path)
    merged = load_version(tmp_path, model_path, torch.float32, torch.device("cpu"))
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        torch.testing.assert_close(adapted(ids).logits, merged(ids).logits, atol=1e-5, rtol=1e-5)
        assert not torch.equal(merged(ids).logits, load_plain(model_path)(ids).logits)


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_a_kl_term_pulls_towards_the_start_weights(
    make_config: Make, turns: list[dict[str, Any]], lora: Any
) -> None:
    loss = {"kl_coefficient": 0.1}
    backend = start(make_config(lora=lora, loss=loss, learning_rate=1e-2))
    first = take_step(backend, step_of(turns), 1)
    assert first.metrics["kl"] == pytest.approx(0.0, abs=1e-6)
    second = take_step(backend, step_of(turns), 2)
    assert second.metrics["kl"] > 1e-4


def test_dropout_of_an_adapter_does_not_enter_the_anchor(
    make_config: Make, turns: list[dict[str, Any]], tmp_path: Path
) -> None:
    config = make_config(lora=LORA | {"dropout": 0.5}, learning_rate=3e-2)
    backend = start(config)
    take_step(backend, step_of(turns), 1)  # so that the adapter changes something
    figures = take_step(backend, step_of(turns), 2)
    assert figures.metrics["ratio_max"] != 1.0
    backend.save_weights(tmp_path)
    same = TorchBackend(make_config(lora=LORA, learning_rate=3e-2), "policy")
    same.load(tmp_path, None)
    one = take_step(same, step_of(turns), 3).metrics["logprob_difference_mean"]
    two = take_step(backend, step_of(turns), 3).metrics["logprob_difference_mean"]
    assert one == pytest.approx(two, abs=1e-6)


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, LORA), (LORA, None), (LORA, LORA | {"rank": 8})],
    ids=["full to lora", "lora to full", "other rank"],
)
def test_versions_of_another_kind_are_refused(
    make_config: Make, tmp_path: Path, before: Any, after: Any
) -> None:
    start(make_config(lora=before)).save_weights(tmp_path)
    with pytest.raises(ConfigError, match=r"rejoinder policy rollback 0"):
        TorchBackend(make_config(lora=after), "policy").load(tmp_path, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 8}, r"trainer\.lora\.rank is 8, .* trained with 4"),
        ({"alpha": 64}, r"trainer\.lora\.alpha is 64.*, .* trained with 32"),
        ({"targets": ("q_proj",)}, r"trainer\.lora\.targets is \['q_proj'\], .* trained with \["),
    ],
    ids=["rank", "alpha", "targets"],
)
def test_an_adapter_of_other_settings_is_refused_naming_both(
    make_config: Make, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    before = LORA | {"rank": 4, "alpha": 32}
    start(make_config(lora=before)).save_weights(tmp_path)
    with pytest.raises(ConfigError, match=message):
        TorchBackend(make_config(lora=before | change), "policy").load(tmp_path, None)


def test_an_adapter_that_no_engine_could_read_is_refused_at_start(make_config: Make) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.lora\.targets: .*embed_tokens"):
        start(make_config(lora={"targets": ("q_proj", "embed_tokens")}))


def test_an_unknown_loss_is_refused_at_start(make_config: Make) -> None:
    with pytest.raises(ConfigError, match="'distil'"):
        TorchBackend(make_config(), "distil")


def test_lora_targets_that_the_model_lacks_are_refused(make_config: Make) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.lora\.targets"):
        start(make_config(lora={"targets": ("no_such_module",)}))


def test_an_adapter_on_the_head_is_refused(make_config: Make) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.lora\.targets"):
        start(make_config(lora={"targets": ("q_proj", "lm_head")}))


def test_the_kind_follows_the_configuration(make_config: Make) -> None:
    assert TorchBackend(make_config(), "policy").kind is WeightsKind.FULL
    assert TorchBackend(make_config(lora=LoraConfig()), "policy").kind is WeightsKind.LORA
