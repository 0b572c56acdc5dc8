"""How benchmarks end, and which code they say they measured."""

import json
import math
import shutil
import subprocess
from pathlib import Path

import pytest

import outcome


def ended(capsys: pytest.CaptureFixture[str], figures: dict, passed: bool | None) -> tuple:
    with pytest.raises(SystemExit) as end:
        outcome.finish("thing", figures, passed=passed)
    return json.loads(capsys.readouterr().out.splitlines()[-1]), end.value.code


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1), (None, 0)])
def test_the_exit_code_is_the_verdict(capsys, passed, code):
    line, exit_code = ended(capsys, {"speed": 3}, passed)
    assert (line["benchmark"], line["speed"], line["passed"]) == ("thing", 3, passed)
    assert exit_code == code
    assert line["machine"]["cores"]
    assert line["machine"]["architecture"]
    assert line["revision"]


def test_a_figure_that_is_no_number_leaves_the_line_readable(capsys):
    line, _ = ended(capsys, {"means": [math.nan, 1.0], "worst": {"a": math.inf}}, False)
    assert line["means"] == [None, 1.0]
    assert line["worst"] == {"a": None}


def test_nan_and_nothing_at_all_meet_no_bar():
    assert outcome.at_most(1.0, [0.5, 1.0])
    assert outcome.at_least(1.0, [1.0, 1.5])
    for meets in (outcome.at_most, outcome.at_least):
        assert not meets(1.0, [])
        assert not meets(1.0, [1.0, math.nan])
        assert not meets(1.0, [math.nan, 1.0])


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("needs git")
    root = tmp_path / "checkout"
    for directory in ("src/rejoinder", "benchmarks"):
        (root / directory).mkdir(parents=True)
    (root / "src/rejoinder/__init__.py").write_text("a = 1\n")
    for command in (
        ("init", "-q"),
        ("add", "src"),
        ("-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "first"),
    ):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    return root.resolve()


def test_the_revision_tells_every_state_of_the_code_from_every_other(checkout):
    package = checkout / "src/rejoinder/__init__.py"
    seen = [outcome.revision(checkout, package)]
    assert len(seen[0]) == 40
    (checkout / "notes.md").write_text("not code")
    assert outcome.revision(checkout, package) == seen[0]
    for text in ("a = 2\n", "a = 3\n"):
        package.write_text(text)
        seen.append(outcome.revision(checkout, package))
    for text in ("b = 1\n", "b = 2\n"):
        (checkout / "benchmarks/new.py").write_text(text)
        seen.append(outcome.revision(checkout, package))
    assert len(set(seen)) == len(seen)
    assert all("-dirty-" in state for state in seen[1:])


def test_without_git_or_with_a_package_from_elsewhere_the_code_is_unknown_and_equals_nothing(
    checkout, tmp_path
):
    assert outcome.revision(checkout, tmp_path / "site/rejoinder/__init__.py") == outcome.UNKNOWN
    bare = tmp_path / "bare"
    (bare / "src/rejoinder").mkdir(parents=True)
    assert outcome.revision(bare, bare / "src/rejoinder/__init__.py") == outcome.UNKNOWN
    assert not outcome.same_code(outcome.UNKNOWN, outcome.UNKNOWN)
    assert outcome.same_code("a", "a")
