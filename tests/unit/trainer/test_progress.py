"""Progress in the terminal."""

from __future__ import annotations

import io

from rich.console import Console
from structlog.testing import capture_logs

from rejoinder.trainer.progress import StepProgress


def test_a_terminal_shows_what_is_going_on() -> None:
    out = io.StringIO()
    with StepProgress(Console(file=out, force_terminal=True, width=80)) as progress:
        progress.show("collecting", 9, 16, "9/16 samples")
        progress.show("step 12", 0.43, 1.0, "43%")
    assert "step 12" in out.getvalue()
    assert "43%" in out.getvalue()


def test_without_a_terminal_only_finished_steps_are_told() -> None:
    out = io.StringIO()
    with StepProgress(Console(file=out)) as progress, capture_logs() as logs:
        progress.show("step 12", 0.43, 1.0, "43%")
        progress.finished(12, 13, {"loss": 0.123456, "tokens": 99})
    assert out.getvalue() == ""
    assert logs[0]["event"] == "step committed"
    assert (logs[0]["step"], logs[0]["version"], logs[0]["loss"]) == (12, 13, 0.1235)
