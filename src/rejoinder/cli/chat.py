"""``rejoinder chat``: a conversation in the terminal, over the API that everyone uses."""

from __future__ import annotations

import http.client
import os
from typing import TYPE_CHECKING, Annotated

import typer

from rejoinder.cli.settings import settings_of
from rejoinder.cli.terminal import err

if TYPE_CHECKING:
    from rejoinder.config import Config

KEY_VARIABLE = "REJOINDER_API_KEY"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Talk to it")(chat)


def chat(
    ctx: typer.Context,
    url: Annotated[
        str | None, typer.Option(help="Gateway (default: the one of this home).")
    ] = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, max=2.0)] = 0.7,
    max_tokens: Annotated[int, typer.Option(min=1)] = 512,
) -> None:
    """Talk to the policy. What you reply is how it learns.

    /good and /bad score the last answer, /new starts a new session, /quit ends.
    A key is taken from REJOINDER_API_KEY, where the gateway wants one; without it, this machine's
    own gateway gets the first of its REJOINDER_API_KEYS.
    """
    from rejoinder.cli.api_client import ApiClient, ApiRefused
    from rejoinder.cli.conversation import Conversation, Style

    config = settings_of(ctx).config
    client = ApiClient(url or _gateway_url(config), key_for(url))
    try:
        model, version = client.live_version()
    except ApiRefused as error:
        if error.status != http.client.UNAUTHORIZED:
            raise
        raise ApiRefused(f"{error}: set {KEY_VARIABLE}=<your key>", error.status) from error
    style = Style(model=model, temperature=temperature, max_tokens=max_tokens)
    err().print(
        f"[bold]{model}[/bold], version {'?' if version is None else version}   "
        "[dim]/good  /bad  /new  /quit   Ctrl-C ends an answer[/dim]"
    )
    scores_teach = url is not None or _scores_teach(config)  # another gateway's are not known
    Conversation(client, style, system, version, scores_teach=scores_teach).run()


def _scores_teach(config: Config) -> bool:
    from rejoinder.algorithms.registry import build_algorithm

    return build_algorithm(config.trainer).needs_verdicts


def _gateway_url(config: Config) -> str:
    """Return where this home's gateway listens: what it reports, else what is configured."""
    from rejoinder.cli.journal import journal_file, open_journal
    from rejoinder.net import http_url, reachable

    host, port = config.gateway.host, config.gateway.port
    if journal_file(config).is_file():
        with open_journal(config) as journal:
            reports = [one for one in journal.reports() if one.role == "gateway"]
        if reports:
            newest = max(reports, key=lambda one: one.seen_at)
            host, port = newest.detail["host"], newest.detail["port"]
    return http_url(reachable(host), port)


def key_for(url: str | None) -> str | None:
    """Return this user's key.

    The gateway's own keys open this machine's gateway only: they never go anywhere else.

    Args:
        url: as the user named it; None: this home's gateway.
    """
    from rejoinder.cli.api_client import split_url
    from rejoinder.config import LOOPBACK

    if named := os.environ.get(KEY_VARIABLE):
        return named
    if url is not None and split_url(url).hostname not in LOOPBACK:
        return None
    first = os.environ.get("REJOINDER_API_KEYS", "").split(",")[0].strip()
    return first.split(":", 2)[2] if first.count(":") >= 2 else None
