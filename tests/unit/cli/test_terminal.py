"""How commands with roles of their own end."""

from __future__ import annotations

import signal
import subprocess
import sys

from rejoinder.cli.terminal import plain, shortened

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


def test_text_of_strangers_is_shown_and_obeyed_by_nobody() -> None:
    assert plain("\x1b[2J\x9b2J\x07 \u202eevil\u061c\ud800") == "�[2J�2J� �evil��"
    kept = "Größe\n\t漢字 👩\u200d🚀"
    assert plain(kept) == kept


def test_a_shortened_text_is_one_line() -> None:
    assert shortened(" a\n\x1b b ", 9) == "a � b"
    assert shortened("x" * 10, 9) == "x" * 8 + "…"
