"""How a running evaluation is shown, with or without a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from rejoinder.evaluation.live_view import LiveView
from rejoinder.evaluation.progress import Snapshot
from rejoinder.evaluation.statistics import Share


def test_without_a_terminal_progress_is_a_line_per_update_and_phase() -> None:
    file = io.StringIO()
    with LiveView(Console(file=file, width=200)) as view:
        for done in range(3):
            view.show(Snapshot("heldout", done, 2))
        for done in (0, 0, 0, 1, 1, 2):
            view.show(Snapshot("learning", done, 2, samples=done * 16, satisfied=Share(1, 2)))
    lines = file.getvalue().splitlines()
    assert len(lines) == 5
    assert "satisfied 50%" in lines[-1]
    assert "2 of 2" in lines[-1]


def test_on_a_terminal_a_phase_keeps_its_bar_when_a_run_comes_back_to_it() -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    with LiveView(console) as view:
        for version in range(3):
            view.show(Snapshot("learning", version, 3))
            for done in range(3):
                view.show(Snapshot("heldout", done, 2))
        bars = [(bar.completed, bar.total) for bar in view._bars.tasks]
    assert bars == [(2, 3), (2, 2)]
