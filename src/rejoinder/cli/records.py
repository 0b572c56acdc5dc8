"""``rejoinder records list | export | size | retain | delete | scrub``.

``list``, ``delete`` and ``scrub`` have files of their own.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from rejoinder.cli import deletion, listing
from rejoinder.cli.journal import open_journal
from rejoinder.cli.settings import settings_of
from rejoinder.cli.terminal import err, out, show_note, size
from rejoinder.errors import RejoinderError

if TYPE_CHECKING:
    from rejoinder.types import Json

app = typer.Typer(no_args_is_help=True, help="List, export, measure and delete what was recorded.")

app.command(name="list")(listing.list_sessions)
app.command()(deletion.delete)
app.command()(deletion.scrub)

_ID = re.compile(r"[0-9a-f]{32}")
_PRIVATE = 0o600
"""Conversations are their owner's, outside the data directory too."""


@app.command()
def export(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="JSONL file to write; - for standard output.")],
    since: Annotated[
        str | None, typer.Option(help="Id of the last exported turn: append what came after it.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that is there already.")
    ] = False,
    policy: Annotated[str | None, typer.Option(help="Only this policy.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
) -> None:
    """Write conversations, verdicts and mean scores per step as JSON lines.

    A new file is readable by its owner only.
    """
    if since is not None and not _ID.fullmatch(since):
        raise RejoinderError(
            f"--since takes the id that an export printed at its end; {since!r} is none"
        )
    with open_journal(settings_of(ctx).config) as journal:
        if str(file) == "-":
            report = journal.export_records(sys.stdout.buffer, since, policy, tenant)
        else:
            with _open(file, going_on=since is not None, force=force) as target:
                report = journal.export_records(target, since, policy, tenant)
    err().print(f"{report['turns']} turns and {report['steps']} steps exported")
    if report["last"]:
        show_note(f"go on later with --since {report['last']}")


def _open(file: Path, *, going_on: bool, force: bool) -> IO[bytes]:
    if file.is_file() and not going_on and not force:
        raise RejoinderError(
            f"{file} is there already: go on with it by --since, replace it by --force, or name "
            "another"
        )
    how = os.O_APPEND if going_on else os.O_TRUNC
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | how, _PRIVATE), "wb")
    except OSError as error:
        raise RejoinderError(f"cannot write {file}: {error.strerror}") from error


@app.command(name="size")
def show_size(ctx: typer.Context) -> None:
    """Show how much space each part of the journal and the weights take."""
    from rich.table import Table

    config = settings_of(ctx).config
    with open_journal(config) as journal:
        report = journal.size_report()
    table = Table("table", "rows", "size", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, part in sorted(report["tables"].items(), key=lambda item: -(item[1]["bytes"] or 0)):
        held = "" if part["bytes"] is None else size(part["bytes"])
        table.add_row(name, str(part["rows"]), held)
    out().print(table)
    weights = size(_directory_bytes(config.versions_path))
    typer.echo(f"journal  {size(report['bytes'])} in {config.journal_url}")
    typer.echo(f"weights  {weights} in {config.versions_path}")


@app.command()
def retain(
    ctx: typer.Context,
    keep_days: Annotated[
        float | None, typer.Option(min=0.0, help="(default: journal.keep_days)")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=1, help="(default: journal.max_bytes)")
    ] = None,
) -> None:
    """Delete ended conversations beyond the configured age or size, oldest first.

    What may still be judged or trained stays.
    """
    config = settings_of(ctx).config
    keep_days = config.journal.keep_days if keep_days is None else keep_days
    max_bytes = config.journal.max_bytes if max_bytes is None else max_bytes
    if keep_days is None and max_bytes is None:
        raise RejoinderError(
            "there is no limit to apply: set journal.keep_days or journal.max_bytes, or give "
            "--keep-days or --max-bytes"
        )
    with open_journal(config) as journal:
        report = journal.apply_retention(keep_days, max_bytes)
    _show_deleted(report)


def _show_deleted(report: Json) -> None:
    sessions, turns = report["sessions"], report["turns"]
    for reason in ("age", "size"):
        out().print(f"{sessions[reason]} sessions, {turns[reason]} turns deleted for {reason}")
    kept = report["kept"]
    out().print(
        f"{sum(kept.values())} sessions stay: {kept['open']} open (they end with session_done or "
        f"after gateway.session_idle_s), {kept['needed']} may still be judged or train, "
        f"{kept['within']} within the limits",
        soft_wrap=True,
    )
    out().print(f"{size(report['bytes'])} in use")
    if report["above_limit"]:
        show_note("still above the limit: nothing that is left may go yet")


def _directory_bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
