"""What the benchmark of hint judges counts."""

import json
import math
from types import SimpleNamespace

import pytest

import hints
from rejoinder.evaluation.personas.persona import load_persona
from rejoinder.journal.records import HintMaker
from rejoinder.judge.hints.base import HintFate, Hinting
from rejoinder.judge.hints.labelled import load_labelled_hints


def report(coverage: float, precision: float, leaks: int) -> dict:
    return {"extractive": {"coverage": coverage, "precision": precision, "leaks": leaks}}


@pytest.mark.parametrize(
    ("figures", "passed"),
    [
        ((0.8, 0.95, 0), True),
        ((0.79, 1.0, 0), False),
        ((1.0, 0.94, 0), False),
        ((1.0, 1.0, 1), False),
        ((0.0, math.nan, 0), False),
    ],
)
def test_the_extractive_judge_passes_only_at_all_bars(figures, passed):
    assert hints.verdict(report(*figures)) is passed
    assert hints.verdict({"llm": {}}) is None


@pytest.mark.parametrize(("split", "passed"), [("held_out", False), ("dev", None)])
def test_only_the_held_out_split_has_a_verdict(monkeypatch, capsys, split, passed):
    async def measured(_: object) -> dict:
        return report(0.1, 1.0, 0)

    monkeypatch.setattr(hints, "measure_all", measured)
    monkeypatch.setattr("sys.argv", ["hints.py", "--split", split])
    with pytest.raises(SystemExit):
        hints.main()
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (line["passed"], line["in_sample"]) == (passed, split == "dev")


async def test_a_persona_is_counted_by_its_sentences_and_by_those_of_its_own_wish():
    async def given(_context: object, _answer: object, next_state: list) -> Hinting:
        if "hello" in next_state[0].content.lower():
            return Hinting(("Say hello first.",))
        return Hinting((), HintFate.NOTHING_SAID)

    judge = SimpleNamespace(maker=HintMaker("f", "extractive", None, "p"), hints=given)
    persona = load_persona("greeting")
    figures = await hints.measure_persona(judge, persona)
    cores = persona.voice["no_greeting"].cores
    assert figures["counts"][1:] == [len(cores), 8]
    named = sum("hello" in core.lower() for core in cores)
    assert figures["coverage_of_its_wish"] == named / len(cores)
    assert figures["coverage_of_complaints"] == round(named / figures["counts"][0], 4)
    assert figures["hints_where_none_is_due"] == 0.125
    assert len(figures["missed"]) == figures["counts"][0] - named


async def test_each_hint_counts_for_precision_and_each_directive_for_coverage():
    items = load_labelled_hints()
    directive = next(item for item in items if item.must_not == ("1969", "longer"))
    praise = next(item for item in items if item.kind == "none_praise")
    script = [
        Hinting(("Keep it shorter.", "Keep it shorter than in 1969.")),
        Hinting((), HintFate.LEAK, failed_calls=("timeout: nothing in 9 s",)),
        Hinting(("Keep it shorter.",)),
    ]

    async def given(*_: object) -> Hinting:
        return script.pop(0)

    judge = SimpleNamespace(maker=HintMaker("f", "extractive", None, "p"), hints=given)
    figures = await hints.measure(judge, [directive, directive, praise])
    assert (figures["coverage"], figures["precision"]) == (0.5, 0.3333)
    assert (figures["rejected"], figures["leaks"], figures["stopped_leaks"]) == (0.0, 1, 1)
    assert figures["failed_calls"] == {"timeout": 1}
    assert figures["missed"] == [directive.id]
