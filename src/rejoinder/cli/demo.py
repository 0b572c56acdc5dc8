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
    seed: Annotated[
        int, typer.Option(min=0, help="Of people, tasks, words, training and sampling.")
    ] = 0,
    output: Annotated[Path, typer.Option(help="Folder of the run's file and its figure.")] = Path(
        "rejoinder-demo"
    ),
    keep: Annotated[
        Path | None, typer.Option(help="Keep the system's data there (default: delete it).")
    ] = None,
) -> None:
    """Show the whole loop on this machine: people talk, and the model learns what they wish.

    They want one short sentence; the system has only their words. It is one run of the persona
    benchmark, with the model and engine of the configuration. The last line printed is one JSON
    object with the result.
    """
    from rejoinder.evaluation.demo import run_demo

    leave_on_sigterm()
    run_demo(settings_of(ctx).config, seed=seed, output=output, keep=keep)
