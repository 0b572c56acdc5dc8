"""Shows a running evaluation: a progress bar on a terminal, sparse lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from rejoinder.evaluation.progress import Snapshot
from rejoinder.evaluation.statistics import Share

LINE_EVERY_S = 30.0
_TITLES = {
    "start": "start of the system",
    "learning": "people talk, policy updates",
    "heldout": "held-out answers of the newest version",
    "stop": "end of the system, once roles let go",
}


class LiveView:
    """A ``Watcher`` for a console; use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description:<40}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[detail]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._phase = ""
        self._done = -1
        self._line_at = 0.0

    def __enter__(self) -> LiveView:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def show(self, snapshot: Snapshot) -> None:
        """See ``Watcher.show``."""
        if self._console.is_terminal:
            self._show_bar(snapshot)
        else:
            self._print_line(snapshot)

    def _show_bar(self, snapshot: Snapshot) -> None:
        """One bar per phase, however often a run comes back to it."""
        task = self._tasks.get(snapshot.phase)
        if task is None:
            task = self._bars.add_task(_TITLES[snapshot.phase], total=snapshot.of, detail="")
            self._tasks[snapshot.phase] = task
        self._bars.update(task, completed=snapshot.done, detail=_detail(snapshot))

    def _print_line(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        news = snapshot.phase != self._phase or snapshot.done == snapshot.of
        if snapshot.phase == "learning":
            news = news or snapshot.done != self._done
        if not news and now - self._line_at < LINE_EVERY_S:
            return
        self._phase, self._done, self._line_at = snapshot.phase, snapshot.done, now
        title = _TITLES[snapshot.phase]
        text = f"{title}: {snapshot.done} of {snapshot.of}  {_detail(snapshot)}"
        self._console.print(text.rstrip(), highlight=False, soft_wrap=True)


def _detail(snapshot: Snapshot) -> str:
    if snapshot.phase != "learning":
        return ""
    return (
        f"{snapshot.samples} samples, satisfied {_percent(snapshot.satisfied)}, "
        f"judge agrees {_percent(snapshot.agreement)}"
    )


def _percent(share: Share) -> str:
    return f"{share.value:.0%}" if share.of else "-"
