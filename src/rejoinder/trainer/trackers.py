"""Metrics to TensorBoard, Weights & Biases or trackio, each behind an optional dependency."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import structlog

from rejoinder.errors import ConfigError

log = structlog.get_logger(__name__)

_PROJECT = "rejoinder"
EXTERNAL = frozenset({"wandb"})
"""Trackers that send figures (never conversations) off this machine; ``status`` names them."""


class Tracker(Protocol):
    """Keeps the figures of steps."""

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        """Keep the figures of the step that made a version; steps count anew after a rewind."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


class Trackers:
    """All trackers of a run. One that fails costs its figures, never a step that is committed."""

    def __init__(
        self,
        trackers: Mapping[str, Tracker],
        on_failure: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """Take trackers by their names; ``on_failure`` gets the name of one that failed."""
        self._trackers = dict(trackers)
        self._on_failure = on_failure

    def log(self, version: int, metrics: Mapping[str, float]) -> str | None:
        """Tell every tracker of a step; returns what went wrong, if anything did."""
        return self._each(lambda tracker: tracker.log(version, metrics))

    def close(self) -> None:
        """Let every tracker write what is left."""
        self._each(lambda tracker: tracker.close())

    def _each(self, action: Callable[[Tracker], None]) -> str | None:
        problems = []
        for name, tracker in self._trackers.items():
            try:
                action(tracker)
            except Exception as error:  # noqa: BLE001 - another package's code: anything may come
                log.warning("a tracker failed", tracker=name, error=repr(error))
                self._on_failure(name)
                problems.append(f"{name}: {type(error).__name__}: {error}")
        return "; ".join(problems) or None


def missing_packages(names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each tracker of ``trainer.trackers`` whose package is not installed.

    A tracker, its package and the extra that brings it have one name.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            yield (
                f"trainer.trackers: {name} is not installed: run `pip install 'rejoinder[{name}]'`,"
                " or take it out of the list"
            )


def build_trackers(names: Sequence[str], home: Path, run: str) -> dict[str, Tracker]:
    """Start trackers. One that cannot start stands in the way of nothing: each step tells why.

    Args:
        names: of ``trainer.trackers``.
        home: data directory; files go below it.
        run: name of this run.

    Raises:
        ConfigError: one is not installed.
    """
    for missing in missing_packages(names):
        raise ConfigError(missing)
    return {name: _start(name, home, run) for name in names}


def _start(name: str, home: Path, run: str) -> Tracker:
    try:
        return _build(name, home, run)
    except Exception as error:  # noqa: BLE001 - another package's code: no network, no key, ...
        log.warning("a tracker cannot start", tracker=name, error=repr(error))
        return _Absent(f"it could not start: {type(error).__name__}: {error}")


def _build(name: str, home: Path, run: str) -> Tracker:
    if name == "tensorboard":
        return _TensorBoard(home / "tensorboard" / run)
    if name == "wandb":
        import wandb

        return _Run(wandb.init(project=_PROJECT, name=run, dir=str(home)))
    import trackio

    return _Run(trackio.init(project=_PROJECT, name=run))


class _Absent:
    """Stands for a tracker that could not start."""

    def __init__(self, why: str) -> None:
        self._why = why

    def log(self, version: int, metrics: Mapping[str, float]) -> None:  # noqa: ARG002
        raise RuntimeError(self._why)

    def close(self) -> None:
        """Nothing was begun."""


class _TensorBoard:
    def __init__(self, directory: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(directory))

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, version)

    def close(self) -> None:
        self._writer.close()


class _Run:
    """W&B's run and trackio's, which has the same calls."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, version: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=version)

    def close(self) -> None:
        self._run.finish()
