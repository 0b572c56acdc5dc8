"""``rejoinder records delete | scrub``: what a person wants gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rejoinder.cli.journal import open_journal
from rejoinder.cli.settings import Settings, settings_of
from rejoinder.cli.terminal import ask_first, counted, out, show_note, size
from rejoinder.errors import RejoinderError

if TYPE_CHECKING:
    from rejoinder.journal.sql import SqlJournal
    from rejoinder.types import Json

SCRUB_BYTES = 256 << 20
"""A journal up to this size is written anew at once, which keeps answers waiting for some seconds;
a larger one when its owner says so."""


def delete(
    ctx: typer.Context,
    sessions: Annotated[
        list[str] | None,
        typer.Argument(help="Ids of sessions (X-Rejoinder-Session-Id), or their clients' names."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    key: Annotated[str | None, typer.Option(help="Only those of this key, by its name.")] = None,
    user: Annotated[str | None, typer.Option(help="Only those of this `user`.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete single conversations, or all of a tenant, key or user, while the system runs.

    Whatever they are at: what waits for the judge or to train goes with them. What has trained
    stays in the weights, and this says in which versions.
    """
    if not sessions and tenant is None and key is None and user is None:
        raise RejoinderError("name sessions, or all of some by --tenant, --key or --user")
    settings = settings_of(ctx)
    with open_journal(settings.config) as journal:
        chosen = journal.find_sessions(sessions or [], tenant, key, user)
        if not chosen:
            raise RejoinderError("there is no such session; nothing was deleted")
        found = journal.tally_sessions(chosen)
        _show(found)
        if dry_run:
            _show_learnt(found, settings)
            show_note("this was a dry run: nothing was deleted")
            return
        if not yes:
            ask_first("Delete all this for good?")
        done = journal.delete_sessions(chosen)
        deleted = f"{counted(done['sessions'], 'session')}, {counted(done['turns'], 'turn')}"
        out().print(f"{deleted} deleted")
        _show_learnt(done, settings)
        _make_sure(journal, done["bytes"], settings)
    show_note("exports and backups that were made before still have them")


def scrub(ctx: typer.Context) -> None:
    """Write the journal's file anew, so that nothing that was deleted is in it.

    The system may run; answers wait meanwhile.
    """
    with open_journal(settings_of(ctx).config) as journal:
        journal.scrub()
    out().print("the journal holds nothing that was deleted")


def _show(found: Json) -> None:
    out().print(f"{counted(found['sessions'], 'session')}, {counted(found['turns'], 'turn')}")
    for name, what in (
        ("answering", "being answered: clients get their answers, which are not recorded"),
        ("judgings", "waiting for the judge, or being read by it"),
        ("waiting", "samples waiting to train, or in a step that is then taken without them"),
        ("trained", "samples that have trained"),
    ):
        if found[name]:
            out().print(f"  {found[name]} {what}", soft_wrap=True)


def _show_learnt(found: Json, settings: Settings) -> None:
    for one in found["learnt"]:
        versions = ", ".join(map(str, one["versions"]))
        told = f"{one['policy']}: versions {versions} learnt from them, which cannot be undone"
        if not one["holds"]:
            told += f"; the live version {one['live']} does not come from those"
        elif one["back_to"] is None:
            told += "; no version from before is kept"
        else:
            told += (
                f"; the newest version from before is {one['back_to']}: `rejoinder policy rollback "
                f"{one['back_to']} --policy {one['policy']}` serves it again (--replay lets the "
                "other samples since then train anew)"
            )
        out().print(settings.spelled(told), soft_wrap=True)


def _make_sure(journal: SqlJournal, used: int, settings: Settings) -> None:
    """Leave no copy in the file, or say how."""
    if used <= SCRUB_BYTES:
        journal.scrub()
        return
    journal.empty_log()
    told = (
        f"the journal is large ({size(used)}): SQLite may have left copies of some rows in unused "
        "parts of its file. `rejoinder records scrub` writes it anew; answers wait meanwhile"
    )
    show_note(settings.spelled(told))
