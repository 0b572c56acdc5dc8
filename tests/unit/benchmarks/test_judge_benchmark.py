"""What the benchmark of judges says of which data."""

import json
import math

import pytest

import judge
from rejoinder.evaluation.statistics import Share
from rejoinder.judge.labelled import load_labelled
from rejoinder.types import Judgement


def report(coverage: float, accuracy: float) -> dict:
    return {"likelihood": {"clear": {"coverage": coverage, "accuracy": accuracy}}}


def ended(monkeypatch, capsys, *words: str) -> tuple[dict, object]:
    async def measured(*_: object) -> dict:
        return report(0.95, 0.5)

    monkeypatch.setattr(judge, "measure_all", measured)
    monkeypatch.setattr("sys.argv", ["judge.py", *words])
    with pytest.raises(SystemExit) as end:
        judge.main()
    return json.loads(capsys.readouterr().out.splitlines()[-1]), end.value.code


def test_without_arguments_only_data_that_nothing_was_fitted_on_is_measured(monkeypatch, capsys):
    line, code = ended(monkeypatch, capsys)
    assert (line["split"], line["in_sample"], line["passed"]) == ("held_out", False, False)
    assert line["items"] == len(load_labelled("held_out"))
    assert code == 1


def test_the_split_of_the_fit_is_marked_and_has_no_verdict(monkeypatch, capsys):
    line, code = ended(monkeypatch, capsys, "--split", "dev")
    assert (line["split"], line["in_sample"], line["passed"]) == ("dev", True, None)
    assert code == 0


@pytest.mark.parametrize(
    ("coverage", "accuracy", "passed"),
    [(0.9, 0.92, True), (0.89, 1.0, False), (1.0, 0.91, False), (0.0, math.nan, False)],
)
def test_the_default_judge_passes_only_at_both_bars(coverage, accuracy, passed):
    assert judge.verdict(report(coverage, accuracy)) is passed
    assert judge.verdict({"plain": report(0, 0)["likelihood"]}) is None


def test_the_interval_is_the_one_that_all_shares_of_the_project_have():
    items = [item for item in load_labelled("held_out") if item.clear][:20]
    pairs = [(item, Judgement(item.labels[0], (), "f")) for item in items]
    assert judge.rates(pairs)["accuracy_95"] == [round(x, 4) for x in Share(20, 20).interval]
    assert judge.rates([])["accuracy_95"] == [0.0, 1.0]
