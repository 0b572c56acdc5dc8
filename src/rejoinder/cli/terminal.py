"""The terminal as all commands use it: one console for results, one for messages."""

from __future__ import annotations

import contextlib
import signal
import sys
from functools import cache
from types import FrameType
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from rejoinder.errors import RejoinderError


@cache
def out() -> Console:
    """Results, on standard output."""
    return Console(highlight=False)


@cache
def err() -> Console:
    """Messages, on standard error."""
    return Console(stderr=True, highlight=False)


def show_error(message: str) -> None:
    """Print an error as a person should see it: what is wrong and what to change."""
    err().print(Text("error: ", style="bold red") + Text(message), soft_wrap=True)


def show_note(message: str) -> None:
    """Print a remark that is no result; where it cannot be written, the work goes on without."""
    with contextlib.suppress(OSError):  # such as a log on a full disk
        err().print(Text(message, style="dim"), soft_wrap=True)


def ask_first(question: str) -> None:
    """Go on only where a person says yes.

    Raises:
        Abort: one says no.
        RejoinderError: nobody is there to ask.
    """
    import typer

    try:
        is_wanted = typer.confirm(question)
    except typer.Abort:  # no answer came
        if sys.stdin.isatty():
            raise
        raise RejoinderError("there is nobody to ask: add --yes") from None
    if not is_wanted:
        raise typer.Abort


def age(seconds: float) -> str:
    """Return a time span in the largest unit that suits."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def counted(number: int, what: str) -> str:
    """Return a number with its noun: "1 turn", "2 turns"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def size(count: float) -> str:
    """Return a number of bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def leave_on_sigterm() -> None:
    """End on SIGTERM by an exception, so that roles are stopped and temporary data is deleted.

    A second one would break that off, and ``timeout`` sends two; how long roles may take to end is
    limited anyway.
    """

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
