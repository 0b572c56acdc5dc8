"""What a demonstration ends with: curve, tables and a JSON object, with or without a terminal."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from rejoinder.evaluation.demo_report import SHOWN_PAIRS, learning_curves, show_demo
from rejoinder.evaluation.personas.records import HeldOutAnswer, RunRecord
from rejoinder.evaluation.statistics import Share
from rejoinder.types import Json

from .personas.kit import measured, run


def read(text: str, *faults: str, task: str = "How do I grow tomatoes?") -> HeldOutAnswer:
    return HeldOutAnswer("calm", task, text, faults)


def record(**changes: object) -> RunRecord:
    made = run("--+++", [measured(0, 1), measured(2, 4, failed=6), measured(3, 9)], "combine")
    sessions = [replace(one, version=number // 3) for number, one in enumerate(made.sessions)]
    answers = {"answers_before": (read("- Water", "list"),), "answers_after": (read("Water."),)}
    return replace(made, sessions=tuple(sessions), **(answers | changes))  # type: ignore[arg-type]


def show(shown: RunRecord, figure: Path) -> tuple[Json, str]:
    file = io.StringIO()
    found = show_demo(shown, 99.5, Console(file=file, width=120), figure)
    return found, file.getvalue()


def test_the_result_tells_before_and_after_with_intervals(tmp_path: Path) -> None:
    found, _ = show(record(), tmp_path / "c.png")
    assert (found["before"], found["after"], found["heldout"]) == (0.1, 0.9, 10)
    low, high = found["after_interval"]
    assert 0.5 < low < 0.9 < high <= 1
    assert (found["updates"], found["samples"], found["failed_requests"]) == (3, 32, 0)
    assert (found["judge_agreement"], found["divergence"], found["seconds"]) == (0.75, 0.03, 99.5)
    assert found["faults_before"] == {"list": 9}
    assert json.loads(json.dumps(found)) == found


def test_a_measurement_that_failed_is_on_no_curve(tmp_path: Path) -> None:
    assert show(record(), tmp_path / "c.png")[0]["curve"] == [[0, 0.1], [3, 0.9]]


def test_what_was_measured_last_is_not_told_of_later_updates(tmp_path: Path) -> None:
    lost = [measured(0, 1), measured(2, 4), measured(3, 9, failed=1)]
    found, text = show(record(measurements=tuple(lost)), tmp_path / "c.png")
    assert (found["updates"], found["updates_measured"], found["after"]) == (3, 2, 0.4)
    assert "after 2 updates" in text
    assert "after 3 updates" not in text


def test_the_people_s_own_answers_count_for_the_version_that_gave_them() -> None:
    training, _ = learning_curves(record())
    assert list(training.points) == [(0, Share(1, 3)), (1, Share(2, 2))]


def test_the_report_is_readable_without_a_terminal(tmp_path: Path) -> None:
    found, text = show(record(), tmp_path / "new" / "c.png")
    assert "\x1b" not in text
    for part in (
        "tomatoes",
        "- Water",
        "(list)",
        "(passes)",
        "0.10 (1 of 10",
        "list 9",
        "failed 0",
    ):
        assert part in text
    assert Path(found["figure"]).read_bytes().startswith(b"\x89PNG")


def test_the_first_answers_are_shown_whether_they_pass_or_not(tmp_path: Path) -> None:
    count = SHOWN_PAIRS + 1
    before = tuple(read("So.", task=f"Question{number}?") for number in range(count))
    after = tuple(read("No.", "echo", task=f"Question{number}?") for number in range(count))
    shown = record(answers_before=before, answers_after=after)
    _, text = show(shown, tmp_path / "c.png")
    assert text.count("(echo)") == SHOWN_PAIRS
    assert "Question0?" in text
    assert f"Question{SHOWN_PAIRS}?" not in text


def test_answers_command_no_terminal(tmp_path: Path) -> None:
    shown = record(answers_after=(read("Water\x9b2J them."),))
    assert "Water�2J them." in show(shown, tmp_path / "c.png")[1]


def test_markup_in_answers_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    shown = record(answers_after=(read("[bold]tomatoes[/bold] [/x]"),))
    assert "[bold]tomatoes[/bold] [/x]" in show(shown, tmp_path / "c.png")[1]
