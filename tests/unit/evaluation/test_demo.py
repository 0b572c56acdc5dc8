"""The demonstration is one run of the persona benchmark, of the model that the user has."""

from __future__ import annotations

import io
import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rejoinder.config import Config, ModelConfig, TorchEngineConfig, TrainerConfig
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.demo import METHOD, SETTINGS, TOOK, TRAINER, run_demo
from rejoinder.evaluation.personas.job import Job
from rejoinder.evaluation.personas.records import RunRecord, read_run, run_path, write_run
from rejoinder.evaluation.personas.settings import TRAINING, overlay, system_config
from rejoinder.evaluation.progress import Watcher
from rejoinder.types import Json

from .personas.kit import measured, run

README = Path(__file__).parents[3] / "README.md"
GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "learn-from-hints.md"
MEASURED = [measured(0, 0, persona="short-sentence"), measured(1, 8, persona="short-sentence")]
BASE = Config(
    home="/elsewhere",
    model=ModelConfig(policy="mine"),
    engine=TorchEngineConfig(threads=3),
    trainer=TrainerConfig(batch_size=2, learning_rate=1.0),
)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that were run: by a script, without any system."""
    made: list[Job] = []

    async def script(job: Job, home: Path, watcher: Watcher) -> RunRecord:
        made.append(job)
        assert home.name != "elsewhere"
        return run("-+", MEASURED, "combine", persona="short-sentence")

    monkeypatch.setattr(Job, "run", script)
    return made


def show(tmp_path: Path, **more: object) -> tuple[Json, str]:
    file = io.StringIO()
    console = Console(file=file, width=120)
    found = run_demo(BASE, output=tmp_path / "out", console=console, **more)  # type: ignore[arg-type]
    return found, file.getvalue()


def test_it_trains_as_the_benchmark_does_whatever_the_user_s_trainer_says(
    jobs: list[Job], tmp_path: Path
) -> None:
    show(tmp_path, seed=7)
    config = jobs[0].config(tmp_path)
    assert (config.model.policy, config.home) == ("mine", str(tmp_path))
    assert isinstance(config.engine, TorchEngineConfig)
    assert config.engine.threads == 3
    assert (config.trainer.algorithm, config.trainer.seed) == ("combine", 7)
    assert config.hints.kind == "extractive"
    assert config.trainer.batch_size == TRAINING.batch_size == 16
    assert config.trainer.learning_rate == TRAINING.learning_rate
    assert (SETTINGS.updates, SETTINGS.answers) == (12, 1)


def test_who_talks_and_how_it_trains_is_told_first(jobs: list[Job], tmp_path: Path) -> None:
    _, text = show(tmp_path)
    said = text.partition("Seed")[0]
    assert "short-sentence: Wants exactly one short" in said
    assert 'trainer.algorithm = "combine"' in said
    assert f"trainer.learning_rate = {TRAINING.learning_rate}" in said
    assert "batch_size" not in said, "16 is the default"


def test_how_long_it_takes_is_told_first_as_the_readme_has_it(
    jobs: list[Job], tmp_path: Path
) -> None:
    _, text = show(tmp_path)
    assert f"took {TOOK}" in text.partition("Seed")[0]
    lines = README.read_text("utf-8").splitlines()
    (row,) = (line for line in lines if line.startswith("| `make demo`"))
    assert f" {TOOK.partition(' on ')[0]}," in row
    shorter = replace(SETTINGS, heldout=20)
    assert "took" not in show(tmp_path, settings=shorter)[1].partition("Seed")[0]


def test_ctrl_c_leaves_no_empty_folder_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> RunRecord:
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "run", interrupted)
    file = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        run_demo(BASE, output=tmp_path / "out", console=Console(file=file, width=120))
    assert "nothing is kept" in file.getvalue()
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_calls_no_earlier_run_of_the_same_seed_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said "finished runs: 1 of 1" of the one that was broken off."""

    async def interrupted(*_: object) -> RunRecord:
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "_run_own_system", interrupted)
    earlier = run_path(tmp_path, ["short-sentence"], METHOD, 0)
    write_run(run("-+", MEASURED, METHOD, persona="short-sentence"), earlier)
    file = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        run_demo(BASE, output=tmp_path, console=Console(file=file, width=120))
    assert "finished runs" not in file.getvalue()
    assert "nothing is kept" in file.getvalue()
    assert earlier.exists()


def test_it_ends_with_one_json_line_and_the_run_s_file(jobs: list[Job], tmp_path: Path) -> None:
    found, text = show(tmp_path, seed=3)
    assert json.loads(text.rstrip().splitlines()[-1]) == found
    assert (found["before"], found["after"]) == (0.0, 0.8)
    assert read_run(Path(found["run"])).updates == 1
    assert Path(found["figure"]).name == "seed-3.png"


def test_a_run_that_was_made_before_is_made_again(jobs: list[Job], tmp_path: Path) -> None:
    show(tmp_path)
    show(tmp_path)
    assert len(jobs) == 2


def test_data_of_an_earlier_run_is_not_touched(jobs: list[Job], tmp_path: Path) -> None:
    home = tmp_path / "kept" / "short-sentence.combine.seed-0"
    home.mkdir(parents=True)
    (home / "journal.db").touch()
    with pytest.raises(RejoinderError, match="earlier run"):
        show(tmp_path, keep=tmp_path / "kept")
    assert jobs == []


@pytest.mark.parametrize(("block", "base"), [(0, TrainerConfig()), (1, TRAINER)])
def test_the_guide_shows_how_benchmark_and_demonstration_train(
    block: int, base: TrainerConfig, tmp_path: Path
) -> None:
    """The second block holds what the demonstration has otherwise."""
    blocks = re.findall(r"```toml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    found: Json = {}
    for text in blocks[: block + 1]:
        found = overlay(found, tomllib.loads(text))
    shown = Config.model_validate_json(json.dumps(found)).trainer
    ours = system_config(Config(trainer=base), SETTINGS, METHOD, 0, tmp_path).trainer
    assert shown == ours
