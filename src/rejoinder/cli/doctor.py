"""``rejoinder doctor``: tries what the system needs, and says what to change."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rejoinder.cli.settings import settings_of
from rejoinder.cli.terminal import out

if TYPE_CHECKING:
    from rejoinder.cli.checkup import Finding

EXIT_FAILED = 1


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Set up")(doctor)


def doctor(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check machine, packages, model, database, ports, keys and judge.

    Exit code 0: nothing failed (warnings may be there); 1: something must be changed.
    """
    from rejoinder.cli.checkup import State, run_checks

    settings = settings_of(ctx)
    findings: list[Finding] = []
    for found in run_checks(settings.config):
        finding = dataclasses.replace(found, remedy=settings.spelled(found.remedy))
        findings.append(finding)
        if not as_json:
            _show(finding)
    counts = {state.value: sum(one.state is state for one in findings) for state in State}
    if as_json:
        plain = [{**finding.plain()} for finding in findings]
        sys.stdout.write(json.dumps({**counts, "checks": plain}) + "\n")
    else:
        out().print("\n" + ", ".join(f"{count} {name}" for name, count in counts.items()))
    if counts[State.FAIL.value]:
        raise typer.Exit(EXIT_FAILED)


def _show(finding: Finding) -> None:
    from rich.padding import Padding
    from rich.text import Text

    style = {"ok": "green", "warn": "yellow", "fail": "bold red"}[finding.state.value]
    head = Text.assemble((f"{finding.state.value:<5}", style), f"{finding.name:<16}", finding.text)
    out().print(head, soft_wrap=True)
    if finding.remedy:
        out().print(Padding(Text(f"→ {finding.remedy}"), (0, 0, 0, 21)))
