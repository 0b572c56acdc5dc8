"""The demonstration in small: the real system learns from people's words."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from rejoinder.config import Config
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.demo import run_demo
from rejoinder.evaluation.personas.records import read_run
from rejoinder.evaluation.personas.settings import BenchmarkSettings

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow]

SMALL = BenchmarkSettings(answers=1, updates=2, measure_every=1, heldout=2, minutes=6.0)


def test_a_small_demonstration_learns_without_a_failed_request(tmp_path: Path) -> None:
    file = io.StringIO()
    found = run_demo(
        Config(),
        SMALL,
        seed=7,
        output=tmp_path / "out",
        keep=tmp_path / "home",
        console=Console(file=file, width=120),
    )
    assert found["updates"] >= 2
    assert [version for version, _ in found["curve"]][:2] == [0, 1]
    assert found["samples"] >= 32
    assert found["failed_requests"] == 0
    assert found["divergence"] is not None
    assert Path(found["figure"]).is_file()
    record = read_run(Path(found["run"]))
    assert {session.answers for session in record.sessions} == {1}
    assert len(record.answers_before) == len(record.answers_after) == 2
    (home,) = (tmp_path / "home").iterdir()
    assert (home / "journal.db").is_file()
    last_line = file.getvalue().rstrip().splitlines()[-1]
    assert json.loads(last_line) == found

    with pytest.raises(RejoinderError, match="earlier run"):
        run_demo(Config(), SMALL, seed=7, output=tmp_path, keep=tmp_path / "home")
