"""What a demonstration ends with: curves, tables and a JSON object, with or without a terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from fake_gateway import GOOD
from rejoinder.evaluation.client import Reply
from rejoinder.evaluation.curves import Curve, draw_in_terminal, save_png
from rejoinder.evaluation.live_view import LiveView
from rejoinder.evaluation.measure import Measurement
from rejoinder.evaluation.progress import Snapshot
from rejoinder.evaluation.questions import Question
from rejoinder.evaluation.report import show_result, summary
from rejoinder.evaluation.run import DemoResult
from rejoinder.evaluation.sessions import judge_by_rule
from rejoinder.evaluation.settings import DemoSettings
from rejoinder.evaluation.statistics import Share

SETTINGS = DemoSettings(heldout=2)
QUESTION = Question("How do I grow tomatoes?", "gardening")


def measurement(version: int, *texts: str) -> Measurement:
    return Measurement(
        version,
        tuple(
            judge_by_rule(QUESTION, Reply("c", text, "stop", 9, 1.0), SETTINGS) for text in texts
        ),
    )


def result(seed: int = 1) -> DemoResult:
    good = GOOD.format(topic="tomatoes")
    return DemoResult(
        seed=seed,
        before=measurement(0, "1. Water\n2. **Sun**", good),
        after=measurement(8, good, good),
        between=(),
        training=((0, Share(3, 16)), (1, Share(9, 16))),
        updates=8,
        samples=128,
        agreement=Share(9, 10),
        no_verdicts=2,
        start_logprob_before=-1.3,
        start_logprob_after=-1.1,
        requests=300,
        failures=(),
        seconds=600.0,
        learning_seconds=400.0,
    )


def test_the_summary_has_what_the_readme_promises() -> None:
    found = summary([result(1), result(2)], SETTINGS, [Path("a.png"), Path("b.png")])
    assert {"before", "after", "updates", "samples", "seconds", "seeds"} <= set(found)
    assert (found["before"], found["after"]) == (0.5, 1.0)
    assert found["seeds"] == [1, 2]
    assert found["samples"] == 256
    assert found["failed_requests"] == 0
    assert [run["in_drift_band"] for run in found["runs"]] == [True, True]
    assert json.loads(json.dumps(found)) == found


def test_the_report_is_readable_without_a_terminal(tmp_path: Path) -> None:
    file = io.StringIO()
    show_result(result(), SETTINGS, Console(file=file, width=100), tmp_path / "new" / "c.png")
    text = file.getvalue()
    assert "\x1b" not in text
    for part in ("tomatoes", "list 1", "0.50 (1 of 2", "1.00 (2 of 2", "c.png", "failed 0"):
        assert part in text
    assert (tmp_path / "new" / "c.png").read_bytes().startswith(b"\x89PNG")


def test_markup_in_answers_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    shown = result()
    shown = DemoResult(
        **{name: getattr(shown, name) for name in DemoResult.__dataclass_fields__}
        | {"after": measurement(8, "[bold]tomatoes[/bold] [/x]")}
    )
    file = io.StringIO()
    show_result(shown, SETTINGS, Console(file=file, width=100), tmp_path / "c.png")
    assert "[bold]tomatoes[/bold]" in file.getvalue()


def test_the_terminal_curve_puts_shares_at_their_height() -> None:
    curve = Curve("x", "#", [(0, Share(0, 4)), (5, Share(2, 4)), (10, Share(4, 4))])
    lines = draw_in_terminal([curve], width=20, height=4).splitlines()
    assert lines[0] == "1.00 |" + " " * 20 + "#"
    assert lines[2] == "0.50 |" + " " * 10 + "#"
    assert lines[4] == "0.00 |#"


def test_curves_without_any_point_are_drawn_empty(tmp_path: Path) -> None:
    empty = [Curve("x", "#", [(0, Share(0, 0))]), Curve("y", "o", [])]
    assert "#" not in draw_in_terminal(empty).splitlines()[0]
    save_png(empty, "nothing", tmp_path / "c.png")


def test_without_a_terminal_progress_is_a_line_per_update_and_phase() -> None:
    file = io.StringIO()
    with LiveView(Console(file=file, width=200)) as view:
        for done in range(3):
            view.show(Snapshot("before", done, 2))
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
