"""``rejoinder demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rejoinder.cli.settings import settings_of
from rejoinder.cli.terminal import leave_on_sigterm


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

    leave_on_sigterm()
    run_demo(settings_of(ctx).config, seeds=range(seeds), output=output, keep=keep)
