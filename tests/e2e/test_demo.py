"""The demonstration in small: the real system learns once from a scripted person's words."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from rejoinder.config import Config
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.demo import run_demo
from rejoinder.evaluation.settings import DemoSettings

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow]

SMALL = DemoSettings(
    updates=2, curve_every=1, heldout=2, people=4, batch_size=4, max_tokens=32, learning_s=240
)


def test_a_small_demonstration_learns_without_a_failed_request(tmp_path: Path) -> None:
    file = io.StringIO()
    found = run_demo(
        Config(),
        SMALL,
        seeds=(7,),
        output=tmp_path / "out",
        keep=tmp_path / "home",
        console=Console(file=file, width=120),
    )
    (run,) = found["runs"]
    assert run["updates"] >= 2
    assert run["curve"][0][0] == 1, "a version that is live no more"
    assert run["samples"] >= SMALL.batch_size
    assert run["failed_requests"] == 0
    assert run["start_logprob_before"] < 0
    assert Path(run["png"]).is_file()
    assert (tmp_path / "home" / "seed-7" / "journal.db").is_file()
    last_line = file.getvalue().rstrip().splitlines()[-1]
    assert json.loads(last_line) == found

    with pytest.raises(RejoinderError, match="earlier run"):
        run_demo(Config(), SMALL, seeds=(7,), output=tmp_path, keep=tmp_path / "home")
