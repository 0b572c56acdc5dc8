"""``rejoinder demo``."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from rejoinder.cli.settings import settings_of


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Talk to it")(demo)


def demo(
    ctx: typer.Context,
    seeds: Annotated[int, typer.Option(min=1, help="Runs, one after the other.")] = 1,
    output: Annotated[Path, typer.Option(help="Directory of the curves.")] = Path("rejoinder-demo"),
    keep: Annotated[
        Path | None, typer.Option(help="Keep the systems' data there (default: delete it).")
    ] = None,
) -> None:
    """Show the whole loop on this machine: a scripted person talks, and the model learns.

    The last line printed is one JSON object with the result.
    """
    from rejoinder.evaluation.demo import run_demo

    signal.signal(signal.SIGTERM, _leave)
    run_demo(settings_of(ctx).config, seeds=range(seeds), output=output, keep=keep)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    """End by an exception, so that roles are stopped and temporary data is deleted."""
    raise SystemExit(128 + number)
