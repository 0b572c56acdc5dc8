"""``rejoinder eval personas``: the list, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rejoinder.cli.main import app
from rejoinder.errors import EXIT_CONFIG, EXIT_REFUSED
from rejoinder.evaluation.personas import persona
from rejoinder.evaluation.personas.persona import shipped_personas
from rejoinder.evaluation.personas.plan import Plan
from rejoinder.types import Json

RUNNER = CliRunner()
SHORT = Path(persona.__file__).parent / "shipped" / "short-sentence.toml"


def test_the_list_names_every_persona() -> None:
    done = RUNNER.invoke(app, ["eval", "personas", "--list"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    for name in shipped_personas():
        assert name in done.output


def test_the_list_of_named_personas_checks_their_files(tmp_path: Path) -> None:
    def listed(persona: str) -> tuple[int, str]:
        done = RUNNER.invoke(
            app, ["eval", "personas", "--list", "--persona", persona], env={"COLUMNS": "200"}
        )
        return done.exit_code, done.output

    code, output = listed("no-lists")
    assert code == 0
    assert "greeting" not in output
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n', "utf-8")
    code, output = listed(str(file))
    assert code == EXIT_CONFIG
    assert "mine.toml has faults" in output
    mine = SHORT.read_text("utf-8").replace('tasks = "everyday"', 'tasks = "mine.jsonl"')
    file.write_text(mine, "utf-8")
    code, output = listed(str(file))
    assert code == EXIT_CONFIG
    assert "mine.jsonl" in output


NO_LISTS = ["--persona", "no-lists"]
PERSON = ["--person-url", "http://127.0.0.1:1/v1"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--list shows"),
        (["--persona", "no-list"], "did you mean no-lists"),
        ([*NO_LISTS, *PERSON], "--person-model"),
        (
            [*NO_LISTS, "--seeds", "2", "--url", "http://127.0.0.1:1", "--label", "x"],
            "a running gateway keeps what it has learnt",
        ),
        ([*NO_LISTS, "--url", "http://127.0.0.1:1"], "--label that says what"),
        ([*NO_LISTS, "--variant", "fast"], "NAME=FILE"),
        (
            [*NO_LISTS, "--label", "x", "--algorithm", "opd", "--algorithm", "binary"],
            "--label names one method",
        ),
    ],
)
def test_arguments_that_cannot_work_are_refused_with_what_to_change(
    arguments: list[str], told: str
) -> None:
    done = RUNNER.invoke(app, ["eval", "personas", *arguments], env={"COLUMNS": "300"})
    assert done.exit_code == EXIT_REFUSED
    assert told in done.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            [*PERSON, "--person-model", "m", "--person-key-env", "NOT_SET_HERE"],
            "NOT_SET_HERE is not set",
        ),
        (["--algorithm", "alchemy"], "no algorithm is called 'alchemy'"),
        (["--variant", "fast=missing.toml"], "missing.toml"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_with_what_to_change(
    arguments: list[str], told: str
) -> None:
    call = ["eval", "personas", *NO_LISTS, *arguments]
    done = RUNNER.invoke(app, call, env={"COLUMNS": "300"})
    assert done.exit_code == EXIT_CONFIG
    assert told in done.output


def test_methods_are_algorithms_and_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plans: list[Plan] = []

    def keep(plan: Plan, **_: object) -> Json:
        plans.append(plan)
        return {"failed_runs": []}

    monkeypatch.setattr("rejoinder.evaluation.personas.benchmark.run_benchmark", keep)
    file = tmp_path / "fast.toml"
    file.write_text('trainer = { algorithm = "combine", learning_rate = 1e-4 }\n')
    call = ["eval", "personas", "--persona", "no-lists", "--variant", f"fast={file}"]
    assert RUNNER.invoke(app, call).exit_code == 0
    assert RUNNER.invoke(app, [*call, "--algorithm", "opd"]).exit_code == 0
    names = [[(one.name, one.algorithm) for one in plan.methods] for plan in plans]
    assert names == [[("fast", "combine")], [("opd", "opd"), ("fast", "combine")]]
    assert plans[0].methods[0].config.trainer.learning_rate == 1e-4


def test_regression_a_limit_without_end_is_refused_for_no_file_can_hold_it() -> None:
    call = ["eval", "personas", *NO_LISTS, "--minutes", "inf"]
    done = RUNNER.invoke(app, call, env={"COLUMNS": "300"})
    assert done.exit_code == EXIT_REFUSED
    assert "--minutes" in done.output


def test_a_plan_with_a_failed_run_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rejoinder.evaluation.personas.benchmark.run_benchmark",
        lambda *_, **__: {"failed_runs": [{"seed": 0}]},
    )
    done = RUNNER.invoke(app, ["eval", "personas", "--persona", "no-lists"])
    assert done.exit_code == EXIT_REFUSED
