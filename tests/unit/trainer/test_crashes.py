"""Real trainer processes, killed with SIGKILL at every moment that matters (rules 3 and 4)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rejoinder.config import Config
from rejoinder.journal.sql import SqlJournal
from rejoinder.policy.durable import PARTIAL
from rejoinder.policy.files import PolicyFiles, has_weights
from rejoinder.types import VersionState

from .crash_trainer import MOMENTS
from .tiny import POLICY, load_plain
from .train_story import TrainStory

SCRIPT = Path(__file__).with_name("crash_trainer.py")
KILLED = -9


def run_and_kill(config: Config, moments: list[str]) -> list[tuple[str, int]]:
    """Run children one after the other; returns each moment with its exit code."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), config.model_dump_json(), *moments],
        check=True,
        capture_output=True,
        text=True,
        timeout=240,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    return [(moment, code) for moment, code in map(json.loads, lines)]


@pytest.mark.parametrize(
    "lora",
    [
        pytest.param(None, id="full"),
        pytest.param({"rank": 2}, id="lora", marks=pytest.mark.slow),
    ],
)
def test_killed_anywhere_nothing_is_lost_and_nothing_trains_twice(
    make_config: Callable[..., Config], story: TrainStory, lora: dict[str, int] | None
) -> None:
    batches = 8
    story.add_samples(4 * batches)
    config = make_config(lora=lora, checkpoint_every=2, max_staleness=100, keep_versions=3)
    moments = [
        "before cleaning up",
        "in the gradient",
        "after the optimizer",
        "with half of the files",
        "before the rename",
        "before the commit",
        "after the commit",  # version 1 counts, without a checkpoint
        "while rewinding",
        "before the second commit",  # a checkpoint is there, its version is not
        "before the third commit",  # both are: the next one goes on from there
        "before the checkpoint",
        "with half of a checkpoint",
        "before retention",
        "to the end",
    ]
    assert set(moments) == {*MOMENTS, "to the end"}
    ends = run_and_kill(config, moments)
    assert ends == [*((moment, KILLED) for moment in moments[:-1]), ("to the end", 0)]

    counted = story.steps()
    assert [step for step, _, _ in counted] == list(range(1, batches + 1))
    consumed = story.consumed()
    assert len(consumed) == len(set(consumed)) == 4 * batches
    assert story.ready() == 0

    versions = story.versions()
    head = counted[-1][1]
    assert story.live() == head
    chain = [head]
    while (parent := versions[chain[-1]].parent) is not None:
        chain.append(parent)
    assert chain == [*(version for _, version, _ in reversed(counted)), 0]
    outside = set(versions) - set(chain)
    assert all(versions[number].state is VersionState.ORPHANED for number in outside)

    files = PolicyFiles(config.versions_path, POLICY)
    root = config.versions_path / POLICY
    assert not [path for path in root.rglob("*") if path.name.startswith(PARTIAL)]
    on_disk = {path.name for path in (root / "versions").iterdir()}
    with_files = [number for number, version in versions.items() if number and version.files]
    assert on_disk == {files.version(number).name for number in with_files}
    assert all(has_weights(versions[number]) for number in with_files)
    assert files.checkpoints()[-1] == head
    if lora is None:
        start, now = story.model, load_plain(files.version(head))
        assert not torch.equal(start.lm_head.weight, now.lm_head.weight)


def test_killed_anywhere_samples_that_teach_nothing_are_used_up_once(
    make_config: Callable[..., Config], story: TrainStory
) -> None:
    batches = 4
    for seed in range(4 * batches):
        story.add_sample(1, seed=seed)
    config = make_config(checkpoint_every=2, baseline="leave_one_out", lora={"rank": 2})
    moments = [
        "before the commit",
        "after the commit",
        "while rewinding",
        "before the checkpoint",
        "before the second commit",
        "before the third commit",
        "before retention",
        "to the end",
    ]
    assert run_and_kill(config, moments) == [
        *((moment, KILLED) for moment in moments[:-1]),
        ("to the end", 0),
    ]
    assert [step for step, _, _ in story.steps()] == list(range(1, batches + 1))
    consumed = story.consumed()
    assert len(consumed) == len(set(consumed)) == 4 * batches
    versions = story.versions()
    assert {one.uri for one in versions.values()} == {versions[0].uri}
    assert not (config.versions_path / POLICY / "versions").exists()


@pytest.mark.parametrize(
    "lora",
    [
        pytest.param(None, id="full"),
        pytest.param({"rank": 2}, id="lora", marks=pytest.mark.slow),
    ],
)
def test_killed_or_not_the_last_weights_and_their_teacher_are_the_same(
    make_config: Callable[..., Config],
    model_path: Path,
    empty_journal: Path,
    tmp_path: Path,
    lora: dict[str, int] | None,
) -> None:
    """To the bit: optimizer, random state, and a teacher that follows the policy."""
    killed_at = ["after the commit", "before the third commit", "with half of a checkpoint"]
    ends = {}
    for name, moments in (("whole", []), ("killed", killed_at)):
        config = make_config(
            lora=lora,
            algorithm="combine",
            teacher={"weights": "ema", "decay": 0.8},
            learning_rate=5e-3,
            max_staleness=100,
        )
        home = tmp_path / name
        home.mkdir()
        shutil.copy(empty_journal, home / "journal.db")
        journal = config.journal.model_copy(update={"url": f"sqlite:///{home / 'journal.db'}"})
        config = config.model_copy(update={"home": str(home), "journal": journal})
        ends[name] = last_files(config, model_path, moments)
    whole, killed = ends["whole"], ends["killed"]
    parts = {key.partition("/")[0] for key in whole}
    assert parts == {"optimizer", "average", "random", "version"}
    assert killed.keys() == whole.keys()
    for key, tensor in killed.items():
        assert torch.equal(tensor, whole[key]), key


def last_files(config: Config, model_path: Path, moments: list[str]) -> dict[str, torch.Tensor]:
    """Train five steps with hints, killed at each of the moments; returns what is on disk then."""
    with SqlJournal(config.journal_url) as journal:
        story = TrainStory(journal, model_path)
        story.add_samples(4 * 5, hints=["50 51 52"])
        codes = [code for _, code in run_and_kill(config, [*moments, "to the end"])]
        assert codes == [*(KILLED for _ in moments), 0]
        counted = story.steps()
        assert [step for step, _, _ in counted] == [1, 2, 3, 4, 5]
        head = counted[-1][1]
        assert (head > 5) is bool(moments)
        assert story.versions()[head].metrics["hinted_fraction"] == 1.0
    files = PolicyFiles(config.versions_path, POLICY)
    (weights,) = files.version(head).glob("*.safetensors")
    version = {f"version/{name}": tensor for name, tensor in load_file(weights).items()}
    return version | load_file(files.checkpoint(head) / "training.safetensors")
