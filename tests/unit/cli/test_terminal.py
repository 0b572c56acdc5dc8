"""How commands with roles of their own end."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import signal
from rejoinder.cli.terminal import leave_on_sigterm

leave_on_sigterm()
try:
    signal.raise_signal(signal.SIGTERM)
finally:
    signal.raise_signal(signal.SIGTERM)
    print("everything was stopped")
"""


def test_a_second_sigterm_does_not_break_the_end_off() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        128 + signal.SIGTERM,
        "everything was stopped\n",
        "",
    )
