"""Progress in the terminal: one moving line, and one lasting line per step."""

from __future__ import annotations

import sys
from types import TracebackType

import structlog
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from rejoinder.types import Json

log = structlog.get_logger(__name__)

_SHOWN = ("loss", "reward_mean", "grad_norm", "entropy", "staleness_mean", "seconds")


class StepProgress:
    """Shows what the trainer does; without a terminal only finished steps, as log lines."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(file=sys.stderr)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task: TaskID = self._bar.add_task("starting", figures="", total=1)
        self._doing = "starting"

    def __enter__(self) -> StepProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, doing: str, done: float, total: float, figures: str) -> None:
        """Move the line."""
        if doing != self._doing:
            self._bar.reset(self._task)
            self._doing = doing
        self._bar.update(
            self._task, description=doing, completed=done, total=total, figures=figures
        )

    def finished(self, step: int, version: int, metrics: Json) -> None:
        """Leave a line about a committed step."""
        shown = {name: round(metrics[name], 4) for name in _SHOWN if name in metrics}
        log.info("step committed", step=step, version=version, **shown)
