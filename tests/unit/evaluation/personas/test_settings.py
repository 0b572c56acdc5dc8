"""What a run's system is made of: its own file first, then the benchmark's settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rejoinder.config import (
    Config,
    DistilConfig,
    LossConfig,
    TeacherConfig,
    TrainerConfig,
    load_config,
)
from rejoinder.evaluation.personas.settings import DEFAULT, TRAINING, system_config
from rejoinder.launch.checks import faults

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "compare-methods.md"
FIRST_PUBLISHED = TrainerConfig(
    algorithm="combine",
    verdict_weight=1.0,
    hint_weight=1.0,
    baseline="none",
    batch_size=16,
    learning_rate=1e-5,
    schedule="constant",
    warmup_steps=0,
    betas=(0.9, 0.98),
    weight_decay=0.1,
    grad_clip=1.0,
    loss=LossConfig(
        kl_coefficient=0.0,
        entropy_coefficient=0.0,
        aggregation="turn_mean",
        distil=DistilConfig(kind="token"),
    ),
    teacher=TeacherConfig(weights="frozen", hint_times=1, choice="longest"),
)


def test_what_a_file_sets_stands_and_the_rest_is_the_benchmark_s(tmp_path: Path) -> None:
    base = Config(trainer=TrainerConfig(learning_rate=1e-5, loss=LossConfig(kl_coefficient=0.0)))
    found = system_config(base, DEFAULT, "opd", 7, tmp_path).trainer
    assert (found.learning_rate, found.loss.kl_coefficient) == (1e-5, 0.0)
    assert (found.betas, found.loss.aggregation) == (TRAINING.betas, TRAINING.loss.aggregation)
    assert (found.algorithm, found.seed) == ("opd", 7)


def test_regression_the_published_recipe_got_weights_and_betas_of_the_benchmark(
    tmp_path: Path,
) -> None:
    (recipe,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    file = tmp_path / "recipe.toml"
    file.write_text(recipe, "utf-8")
    found = system_config(load_config(file), DEFAULT, "combine", 0, tmp_path)
    assert found.trainer == FIRST_PUBLISHED
    assert faults(found) == []
    assert DEFAULT.temperature == 0.6


@pytest.mark.parametrize("weights", ["frozen", "current", "ema"])
def test_whatever_teacher_a_file_chooses_can_be_run(weights: str, tmp_path: Path) -> None:
    trainer = TrainerConfig.model_validate({"teacher": {"weights": weights}})
    assert faults(system_config(Config(trainer=trainer), DEFAULT, "combine", 0, tmp_path)) == []
