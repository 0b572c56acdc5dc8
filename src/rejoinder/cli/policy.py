"""``rejoinder policy list | show | rollback | export``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rejoinder.cli.journal import open_journal
from rejoinder.cli.settings import settings_of
from rejoinder.cli.terminal import age, ask_first, out, show_note

if TYPE_CHECKING:
    from rejoinder.config import Config
    from rejoinder.journal.records import PolicyVersion
    from rejoinder.journal.sql import SqlJournal

app = typer.Typer(no_args_is_help=True, help="See a policy's versions, go back, take one along.")

_FIGURES = {"score": "reward_mean", "loss": "loss", "grad": "grad_norm", "entropy": "entropy"}
"""Columns of the list, and the metrics of the step that they show."""
_STATE_STYLES = {"live": "bold green", "rejected": "red", "orphaned": "yellow"}
PolicyName = Annotated[str | None, typer.Option("--policy", help="(default: model.policy)")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


@app.command(name="list")
def list_versions(ctx: typer.Context, policy: PolicyName = None, as_json: AsJson = False) -> None:
    """List the versions of a policy."""
    config = settings_of(ctx).config
    with open_journal(config) as journal:
        versions = _versions(journal, config, policy)
    if as_json:
        out().print_json(json.dumps([_plain(version) for version in versions]))
        return
    _print_table(versions)


@app.command()
def show(
    ctx: typer.Context,
    version: Annotated[int, typer.Argument(help="Number of the version.")],
    policy: PolicyName = None,
    as_json: AsJson = False,
) -> None:
    """Show one version: where it comes from, its files and its figures."""
    config = settings_of(ctx).config
    with open_journal(config) as journal:
        versions = _versions(journal, config, policy)
    found = _find(versions, version)
    if as_json:
        out().print_json(json.dumps(_plain(found)))
        return
    from rich.text import Text

    from rejoinder.cli.version_view import after_rollback, facts_of, figures_of

    facts = facts_of(found, is_after_rollback=found in after_rollback(versions))
    figures = figures_of(found)
    width = max(len(words) for words in (*facts, *(words for words, _, _ in figures)))
    for words, value in facts.items():
        out().print(Text(f"{words:<{width}}  {value}"), soft_wrap=True)  # a path stays one line
    if figures:
        out().print(Text("\nfigures of its step, with their names in docs/reference/algorithms.md"))
    for words, value, name in figures:
        line = Text.assemble(f"{words:<{width}}  {value:<9}  ", (name, "dim"))
        out().print(line, soft_wrap=True)


@app.command()
def rollback(
    ctx: typer.Context,
    version: Annotated[int, typer.Argument(help="Number of the version to serve again.")],
    policy: PolicyName = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Let samples trained after that version train again.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Serve an earlier version again and go on learning from there, in a new lineage."""
    config = settings_of(ctx).config
    with open_journal(config) as journal:
        versions = _versions(journal, config, policy)
        target = _find(versions, version)
        live = next((one.version for one in versions if one.state == "live"), None)
        if version == live and not replay:
            show_note(f"version {version} is live already; nothing has changed")
            return
        if not yes:
            question = f"Serve version {version} of {target.policy} instead of version {live}?"
            ask_first(question)
        lineage = journal.rollback(target.policy, version, replay=replay)
    show_note(
        f"version {version} is live; engines take it up within seconds. "
        f"The next step continues from it (lineage {lineage.lineage_id})"
    )


@app.command()
def export(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(help="New or empty directory.")],
    version: Annotated[
        int | None, typer.Option(help="Number of the version (default: the live one).")
    ] = None,
    policy: PolicyName = None,
) -> None:
    """Write a version as a Hugging Face model directory or a PEFT adapter."""
    from rejoinder.policy.export import export_version

    config = settings_of(ctx).config
    with open_journal(config) as journal:
        versions = _versions(journal, config, policy)
    if version is None:
        found = next(one for one in versions if one.state == "live")
    else:
        found = _find(versions, version)
    export_version(found, directory)
    show_note(f"version {found.version} of {found.policy} ({found.kind}) is in {directory}")


def _versions(journal: SqlJournal, config: Config, policy: str | None) -> list[PolicyVersion]:
    from rejoinder.errors import JournalError

    name = policy or config.model.policy
    versions = journal.versions(name)
    if not versions:
        known = ", ".join(sorted({live.policy for live in journal.live_versions()})) or "none"
        raise JournalError(f"there is no policy {name!r} (there are: {known})")
    return versions


def _find(versions: list[PolicyVersion], number: int) -> PolicyVersion:
    from rejoinder.errors import JournalError

    for version in versions:
        if version.version == number:
            return version
    newest = versions[-1]
    raise JournalError(f"{newest.policy} has no version {number} (0 to {newest.version})")


def _plain(version: PolicyVersion) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(version)


def _print_table(versions: list[PolicyVersion]) -> None:
    import time

    from rich.table import Table

    from rejoinder.cli.version_view import after_rollback, figure

    table = Table(
        "version",
        "state",
        "step",
        "parent",
        "age",
        "files",
        *_FIGURES,
        box=None,
        padding=(0, 1, 0, 0),
    )
    for column in table.columns:
        column.no_wrap = True
    owners: dict[str, int] = {}
    for version in versions:
        owners.setdefault(version.uri, version.version)
    for version in reversed(versions):
        style = _STATE_STYLES.get(version.state, "")
        state = f"[{style}]{version.state}[/{style}]" if style else str(version.state)
        table.add_row(
            str(version.version),
            state,
            "-" if version.step is None else str(version.step),
            "-" if version.parent is None else str(version.parent),
            age(max(0.0, time.time() - version.created_at)),
            _files(version, owners[version.uri]),
            *(figure(version.metrics.get(name)) for name in _FIGURES.values()),
        )
    out().print(table)
    if gone_back := after_rollback(versions):
        pairs = ", ".join(f"{one.version} from {one.parent}" for one in gone_back)
        show_note(f"a rollback counts steps on from the version gone back to: {pairs}")


def _files(version: PolicyVersion, owner: int) -> str:
    """Say what of a version is on disk; ``owner`` is the version whose weights it has."""
    if not version.files:
        return "-"
    if owner != version.version:  # its step changed no weights
        return f"as {owner}, resumable" if version.checkpoint_uri else f"as {owner}"
    return "resumable" if version.checkpoint_uri else "weights"
