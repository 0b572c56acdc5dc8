"""``rejoinder status``."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from rejoinder.cli.journal import open_journal
from rejoinder.cli.settings import Settings, settings_of
from rejoinder.cli.terminal import out

if TYPE_CHECKING:
    from rejoinder.journal.sql import SqlJournal
    from rejoinder.types import Json

EVERY_S = 2.0
"""Seconds between refreshes, unless said otherwise."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Look and decide")(status)


def status(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[
        float | None,
        typer.Option(
            min=0.2, max=86_400, help="Seconds between refreshes, with --watch (default: 2)."
        ),
    ] = None,
) -> None:
    """Show at a glance whether the policy is learning, and what to do if not."""
    if every is not None and not watch:
        raise typer.BadParameter("it needs --watch", param_hint="--every")
    period = EVERY_S if every is None else every
    settings = settings_of(ctx)
    ways_to_end = (KeyboardInterrupt,) if watch else ()
    with open_journal(settings.config) as journal, contextlib.suppress(*ways_to_end):
        if as_json:
            _print_json(journal, settings, period if watch else None)
        elif watch:
            _watch(journal, settings, period)
        else:
            from rejoinder.cli.status_view import status_screen

            out().print(status_screen(_document(journal, settings)))


def _document(journal: SqlJournal, settings: Settings) -> Json:
    from rejoinder.cli.advice import next_steps

    config = settings.config
    document = journal.status(config.model.policy, config.trainer.max_staleness)
    document["learning"]["reason"] = settings.spelled(document["learning"]["reason"])
    return document | {"next": [settings.spelled(step) for step in next_steps(document)]}


def _print_json(journal: SqlJournal, settings: Settings, every: float | None) -> None:
    """Print the document once, or as one line each time."""
    while True:
        sys.stdout.write(json.dumps(_document(journal, settings), default=str) + "\n")
        sys.stdout.flush()
        if every is None:
            return
        time.sleep(every)


def _watch(journal: SqlJournal, settings: Settings, every: float) -> None:
    from rich.live import Live

    from rejoinder.cli.status_view import status_screen

    with Live(console=out(), auto_refresh=False, screen=out().is_terminal) as live:
        while True:
            live.update(status_screen(_document(journal, settings)), refresh=True)
            time.sleep(every)
