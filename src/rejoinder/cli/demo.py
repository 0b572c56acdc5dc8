"""``rejoinder demo``."""

from __future__ import annotations

import typer

from rejoinder.cli.settings import settings_of


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Talk to it")(demo)


def demo(ctx: typer.Context) -> None:
    """Show the whole loop on this machine: a scripted person talks, and the model learns."""
    from rejoinder.evaluation.demo import run_demo

    run_demo(settings_of(ctx).config)
