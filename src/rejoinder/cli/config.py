"""``rejoinder config show | check``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer

from rejoinder.cli.settings import Settings, settings_of
from rejoinder.cli.terminal import show_note

if TYPE_CHECKING:
    from rejoinder.config import Config

app = typer.Typer(no_args_is_help=True, help="Show the configuration, or check it.")


@app.command()
def show(ctx: typer.Context) -> None:
    """Print the resolved configuration as TOML: the dry run of [bold]up[/bold].

    A configuration that cannot learn or work is refused, with what to change.
    """
    settings = settings_of(ctx)
    sys.stdout.write(_resolved(settings))
    _refuse(settings.config)


@app.command()
def check(ctx: typer.Context) -> None:
    """Say whether the system would start with this configuration."""
    settings = settings_of(ctx)
    _refuse(settings.config)
    where = settings.file or "the built-in defaults"
    typer.echo(f"ok: {where} can serve, judge and train")
    told = "`rejoinder doctor` also tries model, database, ports and judge"
    show_note(settings.spelled(told))


def _refuse(config: Config) -> None:
    from rejoinder.launch.checks import refuse_faults

    refuse_faults(config)


def _resolved(settings: Settings) -> str:
    from rejoinder.config import cache_path
    from rejoinder.launch.toml import config_toml
    from rejoinder.log import Redactor, secrets_of

    config = settings.config
    text = config_toml(config, _notes(config))
    head = [
        f"# From: {settings.file or 'built-in defaults'}",
        f"# Data directory: {config.home_path}",
        f"# Journal: {config.journal_url}",
        f"# Converted models: {cache_path()}",
        "# Secrets come from the environment and are never printed:",
        *(f"#   {name} ({state})" for name, state in _secrets(config).items()),
    ]
    return Redactor(secrets_of(config)).text("\n".join(head) + "\n\n" + text)


def _notes(config: Config) -> dict[str, str]:
    notes = {"model.policy": "what clients put into `model`"}
    if not config.home:
        notes["home"] = f"means {config.home_path}"
    return notes


def _secrets(config: Config) -> dict[str, str]:
    """Return the variables that hold secrets, and whether they are set."""
    from rejoinder.errors import ConfigError
    from rejoinder.gateway.auth import KEYS_VARIABLE, parse_keys

    try:
        count = len(parse_keys(os.environ.get(KEYS_VARIABLE, "")))
        state = f"set, {count} keys" if count else "not set"
    except ConfigError as error:
        state = f"malformed ({error})"
    found = {KEYS_VARIABLE: state}
    for name in config.key_variables:
        found[name] = "set" if os.environ.get(name) else "not set"
    return found
