"""``rejoinder gateway | engine | judge | trainer``: one role in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from rejoinder.cli.settings import settings_of

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from rejoinder.config import Config
    from rejoinder.launch.base import RoleSpec

PANEL = "Single roles"
Descriptor = Annotated[
    int | None, typer.Option("--fd", hidden=True, help="Listening socket of the parent process.")
]
LifelineEnd = Annotated[
    int | None, typer.Option("--lifeline", hidden=True, help="Pipe that ends with the parent.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (gateway, engine, judge, trainer):
        app.command(rich_help_panel=PANEL)(command)


def gateway(ctx: typer.Context, fd: Descriptor = None, lifeline: LifelineEnd = None) -> None:
    """Serve the HTTP API."""
    from rejoinder.gateway.auth import load_keys
    from rejoinder.launch.plan import bind_gateway

    config = _begin(ctx, lifeline)
    load_keys(config.gateway)  # refuses to face strangers without keys, before it faces anyone
    config, listener = _listener(config, fd, bind_gateway)
    _prepare(config)
    from rejoinder.gateway.server import run_gateway

    run_gateway(config, [listener], handed_over=fd is not None)


def engine(ctx: typer.Context, fd: Descriptor = None, lifeline: LifelineEnd = None) -> None:
    """Sample and score tokens with the policy's newest version."""
    from rejoinder.launch.plan import bind_engine

    config, listener = _listener(_begin(ctx, lifeline), fd, bind_engine)
    _prepare(config)
    from rejoinder.launch.engine_role import run_engine

    run_engine(config, listener)


def judge(ctx: typer.Context, lifeline: LifelineEnd = None) -> None:
    """Judge answers by what came after them."""
    config = _begin(ctx, lifeline)
    _prepare(config)
    from rejoinder.judge.role import run_judge

    run_judge(config)


def trainer(ctx: typer.Context, lifeline: LifelineEnd = None) -> None:
    """Train the policy on judged answers."""
    config = _begin(ctx, lifeline)
    _prepare(config)
    from rejoinder.trainer.loop import run_trainer

    run_trainer(config)


def _begin(ctx: typer.Context, lifeline: int | None) -> Config:
    """Do what every role does first."""
    from rejoinder.launch.home import ensure_home, warn_of_exposure
    from rejoinder.launch.lifeline import stop_with_parent
    from rejoinder.log import secrets_of, set_up_logging

    if lifeline is not None:
        stop_with_parent(lifeline)
    settings = settings_of(ctx)
    settings.is_role = True
    config = settings.config
    set_up_logging(config.log_level, secrets=secrets_of(config))
    ensure_home(config)
    if lifeline is None:  # else the supervisor has said it
        warn_of_exposure(config)
    return config


def _listener(
    config: Config, fd: int | None, bind: Callable[[Config], tuple[Config, RoleSpec]]
) -> tuple[Config, socket.socket]:
    """Return the parent's socket, or bind one before anything slow happens."""
    from rejoinder.launch.ports import adopt_port

    if fd is not None:
        return config, adopt_port(fd)
    config, spec = bind(config)
    assert spec.listener is not None
    return config, spec.listener


def _prepare(config: Config) -> None:
    from rejoinder.launch.prepare import prepare
    from rejoinder.models.embedded import resolve_model

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # threads of ours, not of the library
    prepare(config, resolve_model(config.model.path))
