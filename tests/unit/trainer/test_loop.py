"""The trainer role as a whole: real journal, real backend, real signals."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from journal_story import POLICY

from rejoinder.config import Config
from rejoinder.errors import ConfigError
from rejoinder.models.embedded import local_path
from rejoinder.policy.registry import live_sources
from rejoinder.trainer.loop import run_trainer
from rejoinder.types import WeightsKind

from .tiny import load_plain
from .train_story import TrainStory

Make = Callable[..., Config]


def when(condition: Callable[[], bool], then: Callable[[], None]) -> None:
    """Call ``then`` from another thread once a condition holds."""

    def watch() -> None:
        while not condition():
            time.sleep(0.01)
        then()

    threading.Thread(target=watch, daemon=True).start()


@pytest.mark.parametrize("lora", [None, {"rank": 2}], ids=["full", "lora"])
def test_samples_become_versions_that_engines_can_load(
    make_config: Make, story: TrainStory, lora: Any
) -> None:
    story.add_samples(8)
    stop = threading.Event()
    when(lambda: len(story.steps()) == 2, stop.set)
    run_trainer(make_config(lora=lora), stop)
    assert story.steps() == [(1, 1, 4), (2, 2, 4)]
    (source,) = live_sources(story.journal)
    assert (source.policy, source.version) == (POLICY, 2)
    assert source.kind is (WeightsKind.FULL if lora is None else WeightsKind.LORA)
    metrics = story.versions()[1].metrics
    assert metrics["logprob_difference_mean"] < 1e-5
    assert metrics["grad_norm"] > 0
    assert metrics["tokens"] == 4 * 6
    if lora is None:
        trained = load_plain(local_path(source.uri))
        assert not torch.equal(trained.lm_head.weight, story.model.lm_head.weight)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_leaves_handlers_as_they_were(
    make_config: Make, story: TrainStory, number: signal.Signals
) -> None:
    before = signal.getsignal(number)
    story.add_samples(4)
    when(lambda: len(story.steps()) == 1, lambda: os.kill(os.getpid(), number))
    run_trainer(make_config())
    assert signal.getsignal(number) is before
    (report,) = [one for one in story.journal.reports() if one.role == "trainer"]
    assert report.state == "stopped"
    assert report.last_error is None
    assert story.journal.acquire_lease(f"trainer:{POLICY}", "next", 1.0) is not None


def test_an_error_at_start_is_the_last_error_of_the_heartbeat(
    make_config: Make, story: TrainStory
) -> None:
    with pytest.raises(ConfigError):
        run_trainer(make_config(loss={"kl_importance": True}), threading.Event())
    (report,) = [one for one in story.journal.reports() if one.role == "trainer"]
    assert report.last_error is not None
    assert "kl_importance" in report.last_error


def test_a_tracker_off_this_machine_is_named_in_the_heartbeat(
    make_config: Make, story: TrainStory, monkeypatch: pytest.MonkeyPatch
) -> None:  # rule 9
    monkeypatch.setattr("rejoinder.trainer.loop.build_trackers", lambda *_: [])
    stop = threading.Event()
    when(lambda: bool(story.journal.reports()), stop.set)
    run_trainer(make_config(trackers=("wandb",)), stop)
    assert [report.detail["external"] for report in story.journal.reports()] == [["wandb"]]
