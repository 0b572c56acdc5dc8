"""Sharing cores: idle threads sleep."""

from __future__ import annotations

import subprocess
import sys

CODE = (
    "import os, sys; from rejoinder.models.cores import share_cores; share_cores(); "
    "sys.stdout.write(os.environ['OMP_WAIT_POLICY'] + ' ' + os.environ['GOMP_SPINCOUNT'])"
)


def _run(**environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment
    ).stdout


def test_threads_are_told_to_sleep_unless_the_environment_says_otherwise():
    assert _run() == "PASSIVE 1000"
    assert _run(OMP_WAIT_POLICY="ACTIVE") == "ACTIVE 1000"
