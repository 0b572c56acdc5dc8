"""When a seed's result is taken from its file, and when the demonstration passes."""

import json
from dataclasses import replace

import pytest

import demo
from rejoinder.evaluation.demo import SETTINGS


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Runs a seed with the code of a revision; returns which of all runs its result is from."""
    made = []

    def run_demo(*_: object) -> dict:
        made.append(len(made))
        return {"number": made[-1]}

    monkeypatch.setattr(demo, "run_demo", run_demo)

    def run(revision: str, at_end: str | None = None) -> int:
        monkeypatch.setattr(demo, "REVISION", revision)
        monkeypatch.setattr(demo, "revision", lambda: at_end or revision)
        return demo._run(0, SETTINGS, None, tmp_path)["number"]

    return run


def test_a_result_is_given_again_only_for_the_code_that_it_is_of(runs, capsys):
    assert [runs("one"), runs("one"), runs("two"), runs("two"), runs("one")] == [0, 0, 1, 1, 2]
    said = capsys.readouterr().out
    assert "run before with this very code" in said
    assert "is of the code one" in said


def test_a_result_of_code_that_changed_meanwhile_or_is_unknown_is_measured_again(runs):
    assert [runs("one", at_end="two"), runs("one"), runs("one")] == [0, 1, 1]
    assert [runs(demo.UNKNOWN), runs(demo.UNKNOWN)] == [2, 3]


def test_a_result_without_a_revision_is_measured_again(runs, tmp_path):
    assert runs("one") == 0
    file = tmp_path / "seed-0.json"
    kept = json.loads(file.read_text())
    del kept["revision"]
    file.write_text(json.dumps(kept))
    assert runs("one") == 1


def test_a_result_of_other_settings_is_measured_again(runs, monkeypatch, tmp_path):
    assert runs("one") == 0
    demo._run(0, replace(SETTINGS, heldout=7), None, tmp_path)
    assert runs("one") == 2


def test_a_result_of_another_model_is_measured_again(runs, tmp_path):
    assert runs("one") == 0
    config = tmp_path / "other.toml"
    config.write_text('[model]\ndtype = "bfloat16"\n')
    assert demo._run(0, SETTINGS, config, tmp_path)["number"] == 1
    assert demo._run(0, SETTINGS, config, tmp_path)["number"] == 1


@pytest.mark.parametrize(
    ("after", "passed"),
    [([0.75, 0.9], True), ([0.9, 0.74], False), ([0.9, 0.79], False), ([], False)],
)
def test_every_seed_must_reach_the_goal_and_end_above_its_start(after, passed):
    runs = [result(before=b, after=a) for b, a in zip([0.0, 0.8], after, strict=False)]
    assert demo.verdict(runs) is passed


@pytest.mark.parametrize(
    "changes",
    [{"updates": 13, "updates_measured": 13}, {"updates_measured": 10}, {"template_after": 0.4}],
)
def test_a_late_success_an_unmeasured_end_or_one_text_for_all_questions_does_not_pass(changes):
    assert demo.verdict([result()])
    assert not demo.verdict([result(), result(**changes)])


def result(**changes: float) -> dict[str, float]:
    passing = {
        "before": 0.0,
        "after": 0.9,
        "updates": SETTINGS.updates,
        "updates_measured": SETTINGS.updates,
        "template_after": 0.02,
    }
    return passing | changes


def test_updates_to_the_goal_are_those_of_the_first_measurement_that_reaches_it():
    assert demo._updates_to_goal({"curve": [[0, 0.0], [6, 0.75], [12, 0.9]]}) == 6
    assert demo._updates_to_goal({"curve": [[0, 0.0], [12, 0.74]]}) is None
