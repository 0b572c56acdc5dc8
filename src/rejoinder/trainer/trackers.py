"""Metrics to TensorBoard, Weights & Biases or trackio, each behind an optional dependency."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rejoinder.errors import ConfigError

_PROJECT = "rejoinder"
_PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "trackio": "trackio"}
EXTERNAL = frozenset({"wandb"})
"""Trackers that send figures (never conversations) off this machine; ``status`` names them."""


class Tracker(Protocol):
    """Keeps the figures of steps."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep a step's figures."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


def build_trackers(names: Sequence[str], home: Path, run: str) -> list[Tracker]:
    """Start trackers.

    Args:
        names: of ``trainer.trackers``.
        home: data directory; files go below it.
        run: name of this run.

    Raises:
        ConfigError: one is not installed.
    """
    for name in names:
        if importlib.util.find_spec(_PACKAGES[name]) is None:
            raise ConfigError(
                f"trainer.trackers: {name} is not installed: run `pip install 'rejoinder[{name}]'`,"
                " or take it out of the list"
            )
    return [_build(name, home, run) for name in names]


def _build(name: str, home: Path, run: str) -> Tracker:
    if name == "tensorboard":
        return _TensorBoard(home / "tensorboard" / run)
    if name == "wandb":
        import wandb

        return _Run(wandb.init(project=_PROJECT, name=run, dir=str(home)))
    import trackio

    return _Run(trackio.init(project=_PROJECT, name=run))


class _TensorBoard:
    def __init__(self, directory: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(directory))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _Run:
    """W&B's run and trackio's, which has the same calls."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()
