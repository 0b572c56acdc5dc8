"""Trackers behind optional dependencies."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rejoinder.errors import ConfigError
from rejoinder.trainer.trackers import Trackers, build_trackers


def test_a_tracker_that_is_not_installed_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"pip install 'rejoinder\[wandb\]'"):
        build_trackers(("wandb",), tmp_path, "run")


def test_none_are_built_where_none_are_named(tmp_path: Path) -> None:
    assert build_trackers((), tmp_path, "run") == {}


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_run_gets_each_step_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    calls: list[Any] = []
    run = SimpleNamespace(
        log=lambda metrics, step: calls.append((step, metrics)), finish=lambda: calls.append("end")
    )
    module = SimpleNamespace(init=lambda **settings: calls.append(settings) or run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    monkeypatch.setitem(sys.modules, name, module)
    tracker = build_trackers((name,), tmp_path, "default")[name]
    tracker.log(3, {"loss": 0.5})
    tracker.close()
    assert calls[0]["project"] == "rejoinder"
    assert calls[1:] == [(3, {"loss": 0.5}), "end"]


def test_one_that_cannot_start_costs_its_figures_and_tells_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**_settings: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    failed: list[str] = []
    trackers = Trackers(build_trackers(("wandb",), tmp_path, "default"), failed.append)
    problem = trackers.log(1, {"loss": 0.5})
    assert problem is not None
    assert "no network" in problem
    trackers.close()
    assert failed == ["wandb"]


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is optional"
)
def test_tensorboard_writes_its_files(tmp_path: Path) -> None:
    tracker = build_trackers(("tensorboard",), tmp_path, "default")["tensorboard"]
    tracker.log(1, {"loss": 0.5})
    tracker.close()
    assert list((tmp_path / "tensorboard" / "default").iterdir())


class Keeping:
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        self.kept.append((version, metrics))

    def close(self) -> None:
        self.kept.append("end")


class Failing(Keeping):
    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        raise OSError("disk full")

    def close(self) -> None:
        raise ConnectionError("gone")


def test_a_tracker_that_fails_is_counted_and_the_others_are_told() -> None:
    failed: list[str] = []
    keeping = Keeping()
    trackers = Trackers({"wandb": Failing(), "trackio": keeping}, failed.append)
    assert trackers.log(3, {"loss": 0.5}) == "wandb: OSError: disk full"
    trackers.close()
    assert keeping.kept == [(3, {"loss": 0.5}), "end"]
    assert failed == ["wandb", "wandb"]
    assert Trackers({"trackio": keeping}).log(4, {}) is None
