"""``make bench`` with a Python that only says what it was asked to run."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = """#!/bin/sh
echo "ran $1"
case "$1" in {failing}) exit 1;; esac
"""
ALL = [
    "engine",
    "gateway",
    "memory",
    "judge",
    "hints",
    "logprob_parity",
    "splicing",
    "training_cost",
    "update_gap",
    "durability",
    "demo",
]


def bench(tmp_path: Path, failing: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("make") is None:
        pytest.skip("needs make")
    python = tmp_path / "python"
    python.write_text(PYTHON.format(failing=failing))
    python.chmod(0o755)
    done = [tmp_path / name for name in ("python", "torch", "package", "dev", "model")]
    for file in done:
        file.touch()
    old = [f"--old-file={file}" for file in done]
    command = ["make", "bench", *old, f"BIN={tmp_path}", f"DONE={tmp_path}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def ran(made: subprocess.CompletedProcess[str]) -> list[str]:
    lines = [line for line in made.stdout.splitlines() if line.startswith("ran ")]
    return [Path(line.removeprefix("ran ")).stem for line in lines]


def test_a_benchmark_that_fails_skips_no_other_one_and_fails_the_whole(tmp_path):
    made = bench(tmp_path, "*/engine.py|*/judge.py")
    assert ran(made) == ALL
    assert "failed: engine judge" in made.stdout
    assert made.returncode != 0


def test_the_whole_passes_when_every_benchmark_does(tmp_path):
    made = bench(tmp_path, "nothing")
    assert ran(made) == ALL
    assert made.returncode == 0
