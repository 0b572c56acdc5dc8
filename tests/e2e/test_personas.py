"""The persona benchmark in small: the real system learns once from two simulated people."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from rejoinder.config import Config, TrainerConfig
from rejoinder.evaluation.personas.benchmark import run_benchmark
from rejoinder.evaluation.personas.persona import load_persona
from rejoinder.evaluation.personas.plan import Method, Plan
from rejoinder.evaluation.personas.records import read_runs
from rejoinder.evaluation.personas.settings import BenchmarkSettings

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow]


def test_a_joint_run_learns_and_is_not_made_again(tmp_path: Path) -> None:
    personas = (load_persona("short-sentence"), load_persona("student"))
    base = Config(trainer=TrainerConfig(batch_size=4))
    plan = Plan(
        groups=(personas,),
        methods=(Method.of("binary", base),),
        settings=BenchmarkSettings(updates=1, heldout=2, people=4, minutes=4),
    )
    file = io.StringIO()
    found = run_benchmark(plan, tmp_path, console=Console(file=file, width=120))
    assert json.loads(file.getvalue().rstrip().splitlines()[-1]) == found
    (record,) = read_runs(tmp_path)
    assert record.updates >= 1
    assert record.failed_requests == 0
    assert {session.persona for session in record.sessions} == {"short-sentence", "student"}
    first, *_, last = record.measurements
    assert first.divergence == pytest.approx(0.0, abs=1e-3), "the start weights against themselves"
    assert last.divergence is not None
    assert first.personas["student"].right.of == 2
    assert first.personas["short-sentence"].right.of == 0

    again = io.StringIO()
    run_benchmark(plan, tmp_path, console=Console(file=again, width=120))
    assert "finished before" in again.getvalue()
