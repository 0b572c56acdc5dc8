"""A packed step changes each seat as the trainer would, whoever else is in the pack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.unit.trainer.tiny import save_tiny_model
from torch import Tensor

from rejoinder.algorithms.base import TokenSignal
from rejoinder.config import (
    Config,
    DistilConfig,
    LossConfig,
    ModelConfig,
    TeacherConfig,
    TrainerConfig,
)
from rejoinder.errors import ConfigError
from rejoinder.evaluation.pack import learning
from rejoinder.evaluation.pack.learning import PackedTrainer, SeatTraining
from rejoinder.evaluation.pack.stacked import StackedModel
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.torch_backend import TorchBackend

CPU = torch.device("cpu")
TRAINING = TrainerConfig(
    learning_rate=1e-2,
    warmup_steps=2,
    loss=LossConfig(kl_coefficient=0.3, aggregation="token_mean"),
)


@pytest.fixture(autouse=True)
def several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a step of one batch take several passes."""
    monkeypatch.setattr(learning, "_MOST_IDS", 128)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path)


def turns_of(seed: int, count: int, *, hints: bool) -> list[SignalledTurn]:
    """Turns of different lengths, every second one with a hint where there are any."""
    rng = np.random.default_rng(seed)
    lengths = [int(rng.integers(2, 9)) for _ in range(count)]
    turns = []
    for number, length in enumerate(lengths):
        prompt = rng.integers(1, 60, int(rng.integers(2, 12))).tolist()
        hinted = hints and number % 2 == 0
        mask = np.ones(length, np.bool_)
        mask[0] = number != 1  # a token that does not learn
        turns.append(
            SignalledTurn(
                prompt_ids=prompt,
                answer_ids=rng.integers(1, 60, length).tolist(),
                behaviour=(-4 + rng.normal(size=length)).tolist(),
                temperature=float(rng.uniform(0.5, 1.2)),
                signal=TokenSignal(
                    np.full(length, rng.choice([-1.0, 1.0]), np.float32), mask, 0.7 * hinted
                ),
                weight=1 / sum(lengths),
                is_current=False,
                teacher_prompts=([*prompt, 7, 8, 9],) if hinted else (),
            )
        )
    return turns


def by_the_trainer(
    path: Path, config: TrainerConfig, loss: str, steps: list[list[SignalledTurn]]
) -> dict[str, Tensor]:
    return by_the_backend(path, config, loss, steps)._loaded()[0].master()


def by_the_backend(
    path: Path, config: TrainerConfig, loss: str, steps: list[list[SignalledTurn]]
) -> TorchBackend:
    whole = Config(model=ModelConfig(path=str(path), device="cpu"), trainer=config)
    backend = TorchBackend(whole, loss, needs_teacher=loss != "policy")
    backend.load(None, None)
    for number, turns in enumerate(steps, 1):
        for _ in backend.accumulate(turns):
            pass
        if turns:  # as the training loop does
            backend.apply(number)
    return backend


def packed(
    path: Path, seats: list[SeatTraining], steps: list[dict[int, list[SignalledTurn]]]
) -> StackedModel:
    model = StackedModel(path, len(seats), CPU)
    trainer = PackedTrainer(model, StackedModel(path, 1, CPU), seats)
    for turns in steps:
        assert trainer.step(turns) == []
    return model


def assert_same(model: StackedModel, seat: int, expected: dict[str, Tensor]) -> None:
    """Adam makes a step of a gradient that is nearly 0, whose last digits are all it has."""
    for name, weight in expected.items():
        found = model.weights[name][seat]
        close = torch.isclose(found, weight, atol=2e-5, rtol=1e-3)
        assert close.float().mean() > 0.99, name
        torch.testing.assert_close(found, weight, atol=2e-3, rtol=0, msg=lambda m, n=name: n + m)


def distilling(rate: float, **distil: object) -> TrainerConfig:
    loss = TRAINING.loss.model_copy(update={"distil": DistilConfig.model_validate(distil)})
    return TRAINING.model_copy(update={"loss": loss, "learning_rate": rate})


@pytest.mark.parametrize(
    "distil",
    [
        {"kind": "topk", "top": 5},
        {"kind": "jsd", "top": 5},
        {"kind": "jsd"},  # compares more tokens than the vocabulary has
        {"kind": "tail", "top": 5},
        {"kind": "jsd", "alpha": 0.0, "top": 5},
        {"kind": "token"},
    ],
    ids=["topk", "jsd", "whole", "tail", "forward", "token"],
)
def test_seats_learn_as_by_the_trainer(path: Path, distil: dict[str, object]) -> None:
    loss, other = f"distil_{distil['kind']}", distilling(3e-3, **distil)
    plain = [turns_of(seed, 5, hints=False) for seed in (1, 2)]
    hinted = [turns_of(seed, 7, hints=True) for seed in (3, 4)]
    seats = [SeatTraining(TRAINING, "policy"), SeatTraining(other, loss)]
    model = packed(path, seats, [{0: plain[0], 1: hinted[0]}, {0: plain[1], 1: hinted[1]}])
    assert_same(model, 0, by_the_trainer(path, TRAINING, "policy", plain))
    assert_same(model, 1, by_the_trainer(path, other, loss, hinted))


def test_seats_serve_what_the_trainer_would(path: Path, tmp_path: Path) -> None:
    """One an average, the other its newest weights; a step without turns moves neither."""
    averaged = TRAINING.model_copy(update={"average": 0.7})
    first, second = (
        [turns_of(seed, 5, hints=False) for seed in seeds] for seeds in ((1, 2), (3, 4))
    )
    model = StackedModel(path, 2, CPU)
    seats = [SeatTraining(averaged, "policy"), SeatTraining(TRAINING, "policy")]
    trainer = PackedTrainer(model, StackedModel(path, 1, CPU), seats)
    for turns in ({0: first[0], 1: second[0]}, {0: [], 1: second[1]}, {0: first[1], 1: []}):
        assert trainer.step(turns) == []
    for seat, (config, steps) in enumerate(
        ((averaged, [first[0], [], first[1]]), (TRAINING, [*second, []]))
    ):
        backend = by_the_backend(path, config, "policy", steps)
        (tmp_path / str(seat)).mkdir()
        backend.save_weights(tmp_path / str(seat))
        (file,) = (tmp_path / str(seat)).glob("*.safetensors")
        expected = load_file(file)
        assert_same(trainer.served, seat, {n: w for n, w in expected.items() if n in model.weights})
    assert trainer.served is not model
    assert not torch.equal(
        trainer.served.weights["model.norm.weight"][0], model.weights["model.norm.weight"][0]
    )


def test_seats_have_betas_decay_and_clip_of_their_own(path: Path) -> None:
    other = TRAINING.model_copy(
        update={"betas": (0.7, 0.9), "weight_decay": 0.3, "grad_clip": 0.05, "learning_rate": 2e-3}
    )
    first, second = (
        [turns_of(seed, 5, hints=False) for seed in seeds] for seeds in ((1, 2), (3, 4))
    )
    seats = [SeatTraining(TRAINING, "policy"), SeatTraining(other, "policy")]
    steps = [{0: mine, 1: yours} for mine, yours in zip(first, second, strict=True)]
    model = packed(path, seats, steps)
    assert_same(model, 0, by_the_trainer(path, TRAINING, "policy", first))
    assert_same(model, 1, by_the_trainer(path, other, "policy", second))


def test_who_takes_a_seat_over_finds_nothing_of_who_left(path: Path, tmp_path: Path) -> None:
    """Neither weights nor moments, nor an average to serve, nor a teacher that moves."""
    before = TRAINING.model_copy(update={"average": 0.7})
    after = distilling(3e-3, kind="topk", top=5).model_copy(
        update={"average": 0.4, "teacher": TeacherConfig(weights="ema", decay=0.5)}
    )
    steps = [turns_of(seed, 7, hints=True) for seed in (3, 4)]
    model = StackedModel(path, 1, CPU)
    runs = [SeatTraining(before, "policy"), SeatTraining(after, "distil_topk")]
    trainer = PackedTrainer(model, StackedModel(path, 1, CPU), runs)
    for seed in (1, 2):
        assert trainer.step({0: turns_of(seed, 5, hints=False)}) == []
    trainer.begin(0, 1)
    for turns in steps:
        assert trainer.step({0: turns}) == []
    assert_same(model, 0, by_the_trainer(path, after, "distil_topk", steps))
    by_the_backend(path, after, "distil_topk", steps).save_weights(tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    served = {name: weight.float() for name, weight in load_file(file).items()}
    assert_same(trainer.served, 0, {name: served[name] for name in trainer.served.weights})


def test_seats_without_a_teacher_keep_no_average(path: Path) -> None:
    config = TRAINING.model_copy(update={"teacher": TeacherConfig(weights="ema")})
    model = StackedModel(path, 2, CPU)
    copies = []
    model.twin = lambda: copies.append(1) or model  # type: ignore[method-assign,func-returns-value]
    PackedTrainer(model, StackedModel(path, 1, CPU), [SeatTraining(config, "policy")] * 2)
    assert not copies
    PackedTrainer(model, StackedModel(path, 1, CPU), [SeatTraining(config, "distil_topk")] * 2)
    assert copies


def test_seats_compare_tokens_of_their_own_kind_and_number(path: Path) -> None:
    configs = [
        distilling(3e-3, kind="topk", top=3),
        distilling(3e-3, kind="tail", top=6),
        distilling(3e-3, kind="jsd", alpha=0.0, top=4),
        distilling(3e-3, kind="token"),
    ]
    losses = [f"distil_{config.loss.distil.kind}" for config in configs]
    turns = [turns_of(seed, 5, hints=True) for seed in (1, 2, 3, 4)]
    seats = [SeatTraining(*pair) for pair in zip(configs, losses, strict=True)]
    model = packed(path, seats, [dict(enumerate(turns))])
    for seat, (config, loss) in enumerate(zip(configs, losses, strict=True)):
        assert_same(model, seat, by_the_trainer(path, config, loss, [turns[seat]]))


def test_each_seat_has_the_teacher_of_its_own_kind(path: Path) -> None:
    teachers = [{"weights": "current"}, {"weights": "ema", "decay": 0.5}, {}, {"weights": "ema"}]
    plain = distilling(3e-3, kind="jsd", alpha=0.0, top=4)
    configs = [
        plain.model_copy(update={"teacher": TeacherConfig.model_validate(one)}) for one in teachers
    ]
    steps = [
        {seat: turns_of(10 * number + seat, 5, hints=True) for seat in range(len(configs))}
        for number in range(3)
    ]
    model = packed(path, [SeatTraining(config, "distil_jsd") for config in configs], steps)
    for seat, config in enumerate(configs):
        expected = by_the_trainer(path, config, "distil_jsd", [step[seat] for step in steps])
        assert_same(model, seat, expected)


def test_a_teacher_that_is_the_policy_needs_no_weights_of_its_own(path: Path) -> None:
    config = distilling(3e-3, kind="topk").model_copy(
        update={"teacher": TeacherConfig(weights="current")}
    )
    steps = [turns_of(seed, 5, hints=True) for seed in (1, 2)]
    model = packed(path, [SeatTraining(config, "distil_topk")], [{0: turns} for turns in steps])
    assert_same(model, 0, by_the_trainer(path, config, "distil_topk", steps))


def test_a_seat_without_a_step_stays_and_counts_its_own_steps(path: Path) -> None:
    turns = [turns_of(seed, 4, hints=False) for seed in (1, 2)]
    seats = [SeatTraining(TRAINING, "policy")] * 2
    model = packed(path, seats, [{0: turns[0]}, {0: turns[1], 1: turns[0]}])
    assert_same(model, 0, by_the_trainer(path, TRAINING, "policy", turns))
    assert_same(model, 1, by_the_trainer(path, TRAINING, "policy", turns[:1]))


def test_a_step_without_a_signal_counts_for_the_learning_rate_alone(path: Path) -> None:
    turns = turns_of(1, 4, hints=False)
    model = packed(path, [SeatTraining(TRAINING, "policy")] * 2, [{0: []}, {0: turns, 1: []}])
    assert_same(model, 0, by_the_trainer(path, TRAINING, "policy", [[], turns]))
    assert_same(model, 1, by_the_trainer(path, TRAINING, "policy", []))


def test_rows_of_a_pass_stay_within_the_budget_whoever_has_the_long_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against one long turn that many short ones of another seat are padded to."""
    short = turns_of(1, 20, hints=False)
    long = [replace(one, prompt_ids=[3] * 50) for one in turns_of(2, 2, hints=False)]
    shapes: list[tuple[int, ...]] = []
    whole = StackedModel.hidden

    def hidden(
        self: StackedModel, ids: Tensor, mask: Tensor, *, saves_memory: bool = False
    ) -> Tensor:
        if self.seats == 2:
            shapes.append(tuple(ids.shape))
        return whole(self, ids, mask, saves_memory=saves_memory)

    monkeypatch.setattr(StackedModel, "hidden", hidden)
    model = packed(path, [SeatTraining(TRAINING, "policy")] * 2, [{0: short, 1: long}])
    assert all(rows == 1 or rows * length <= 64 for _, rows, length in shapes)
    assert sum(rows for _, rows, _ in shapes) == len(short)
    assert_same(model, 0, by_the_trainer(path, TRAINING, "policy", [short]))
    assert_same(model, 1, by_the_trainer(path, TRAINING, "policy", [long]))


def test_a_gradient_that_is_not_finite_changes_nothing(path: Path) -> None:
    model = StackedModel(path, 2, CPU)
    trainer = PackedTrainer(
        model, StackedModel(path, 1, CPU), [SeatTraining(TRAINING, "policy")] * 2
    )
    with torch.no_grad():
        model.weights["model.norm.weight"][1, 0] = float("inf")
    before = {name: weight[1].clone() for name, weight in model.weights.items()}
    turns = turns_of(1, 4, hints=False)
    assert trainer.step({0: turns, 1: turns}) == [1]
    for name, weight in before.items():
        torch.testing.assert_close(model.weights[name][1], weight, rtol=0, atol=0)
    assert_same(model, 0, by_the_trainer(path, TRAINING, "policy", [turns]))


def test_a_seat_learns_on_after_steps_that_were_nothing(path: Path) -> None:
    """Guards against moments of an idle seat that its neighbours' steps make NaN."""
    model = StackedModel(path, 2, CPU)
    trainer = PackedTrainer(
        model, StackedModel(path, 1, CPU), [SeatTraining(TRAINING, "policy")] * 2
    )
    turns = turns_of(1, 4, hints=False)
    norm = model.weights["model.norm.weight"].detach()
    usual = norm[1].clone()
    norm[1, 0] = float("inf")
    assert trainer.step({1: turns}) == [1]
    assert trainer.step({0: turns}) == []
    norm[1] = usual
    assert trainer.step({1: turns}) == []
    assert_same(model, 0, by_the_trainer(path, TRAINING, "policy", [turns]))
    assert_same(model, 1, by_the_trainer(path, TRAINING, "policy", [[], turns]))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"lora": {"rank": 4}}, "trainer.lora"),
        ({"loss": {"entropy_coefficient": 0.1}}, "entropy_coefficient"),
    ],
)
def test_what_a_pack_would_not_follow_is_refused(changed: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        SeatTraining(TrainerConfig.model_validate(changed), "distil_topk")


def test_a_seat_goes_on_from_a_version_that_it_served(path: Path) -> None:
    """With its weights and steps, without moments, and nobody else notices."""
    averaged = TRAINING.model_copy(update={"average": 0.7})
    seats = [SeatTraining(averaged, "policy"), SeatTraining(TRAINING, "policy")]
    model = StackedModel(path, 2, CPU)
    trainer = PackedTrainer(model, StackedModel(path, 1, CPU), seats)
    steps = [turns_of(seed, 5, hints=False) for seed in (1, 2, 3)]
    assert trainer.step({0: steps[0], 1: steps[0]}) == []
    trainer.keep(0, 1, {1})
    kept = {name: stack[0].bfloat16().float() for name, stack in trainer.served.weights.items()}
    assert trainer.step({0: steps[1], 1: steps[1]}) == []
    trainer.keep(0, 2, {1})
    trainer.go_back(0, 1)
    for stacks in (model.weights, trainer.served.weights):
        for name, weight in kept.items():
            torch.testing.assert_close(stacks[name][0].detach(), weight, rtol=0, atol=0)
    other = StackedModel(path, 1, CPU)
    fresh = PackedTrainer(other, StackedModel(path, 1, CPU), [SeatTraining(averaged, "policy")])
    with torch.no_grad():
        for name, weight in kept.items():
            other.weights[name][0] = weight
            fresh.served.weights[name][0] = weight
    fresh.step({0: []})  # the learning rate follows from the number of steps
    assert trainer.step({0: steps[2], 1: steps[2]}) == []
    assert fresh.step({0: steps[2]}) == []
    for name in kept:
        torch.testing.assert_close(model.weights[name][0], other.weights[name][0])
    assert_same(model, 1, by_the_trainer(path, TRAINING, "policy", steps))


def test_a_seat_goes_back_to_the_start(path: Path) -> None:
    model, start = StackedModel(path, 1, CPU), StackedModel(path, 1, CPU)
    trainer = PackedTrainer(model, start, [SeatTraining(TRAINING, "policy")])
    turns = turns_of(1, 5, hints=False)
    assert trainer.step({0: turns}) == []
    trainer.go_back(0, 0)
    for name, weight in start.weights.items():
        torch.testing.assert_close(model.weights[name].detach(), weight, rtol=0, atol=0)
    assert trainer.step({0: turns}) == []
    assert_same(model, 0, by_the_trainer(path, TRAINING, "policy", [turns]))
