"""``rejoinder records list``: the newest conversations, by how they begin."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from rejoinder.cli.journal import open_journal
from rejoinder.cli.settings import settings_of
from rejoinder.cli.terminal import age, out, show_note
from rejoinder.plain_text import shortened

if TYPE_CHECKING:
    from rejoinder.types import Json

_TEXT = 60
"""Characters of how a conversation begins, and of a name, that are shown."""


def list_sessions(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="So many of them, the newest.")] = 20,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    key: Annotated[str | None, typer.Option(help="Only those of this key, by its name.")] = None,
    user: Annotated[str | None, typer.Option(help="Only those of this `user`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead.")] = False,
) -> None:
    """List the newest conversations: whose they are, how they begin, how long they are.

    Their ids are what `records delete` takes; --json has the whole first question.
    """
    with open_journal(settings_of(ctx).config) as journal:
        found = journal.list_sessions(limit, tenant, key, user)
    if as_json:
        out().print_json(json.dumps(found), ensure_ascii=True)  # nothing in it commands a terminal
        return
    if not found:
        show_note("there is no such conversation")
        return
    _print_table(found)
    if len(found) == limit:
        show_note(f"there may be more: --limit {10 * limit}")


def _print_table(found: list[Json]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("session", "last", "turns", "whose", "begins", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    table.columns[2].justify = "right"
    now = time.time()
    for one in found:
        asked = one["begins"]
        table.add_row(
            one["session"],
            age(max(0.0, now - one["last_at"])),
            str(one["turns"]),
            Text(_whose(one)),
            Text("" if asked is None else shortened(asked["text"], _TEXT)),
        )
    out().print(table)


def _whose(one: Json) -> str:
    """Return tenant, key and user, each where it says more than the one before, and the name."""
    names = list(dict.fromkeys(name for name in (one["tenant"], one["key"], one["user"]) if name))
    whose = shortened("/".join(names), _TEXT)
    return whose if one["external"] is None else f"{whose} {shortened(one['external'], _TEXT)}"
