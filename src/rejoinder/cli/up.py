"""``rejoinder up``: the whole system on this machine, until Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import typer

from rejoinder.cli.settings import settings_of
from rejoinder.cli.terminal import err, out, show_note
from rejoinder.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from rich.text import Text

    from rejoinder.journal.sql import SqlJournal
    from rejoinder.launch.system import LocalSystem
    from rejoinder.types import Json

_TICK_S = 0.2
_STATUS_S = 2.0


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Talk to it")(up)


def up(ctx: typer.Context) -> None:
    """Start serving, judging and training on this machine; Ctrl-C ends all of it."""
    from rejoinder.journal.sql import SqlJournal
    from rejoinder.launch.home import logs_path
    from rejoinder.launch.housekeeping import Housekeeper
    from rejoinder.launch.system import LocalSystem
    from rejoinder.log import secrets_of, set_up_logging

    settings = settings_of(ctx)
    config = settings.config
    set_up_logging("warning", as_json=False, secrets=secrets_of(config))
    with (
        LocalSystem(config) as system,
        _stop_on_signal(system) as stopping,
        ExitStack() as resources,
    ):
        show_note(f"data: {config.home_path}   logs: {logs_path(config)}")
        with _progress() as say:
            system.start(say)
            # Opened before anything serves: later an error in it would be no reason to stop.
            journal = resources.enter_context(SqlJournal(system.config.journal_url))
            system.wait_until_ready(say, keep_on=lambda: not stopping.is_set(), tell=show_note)
        if stopping.is_set():
            show_note("stopping before anything was served")
        else:
            _show_how_to_talk(system, settings.command)
            with Housekeeper(journal, system.config.journal):
                _watch(system, journal, stopping)
            show_note(
                "stopping: answers in progress are finished; Ctrl-C again ends at once, and what "
                "was learnt since the last checkpoint is learnt anew"
            )
    show_note("stopped")


@contextmanager
def _stop_on_signal(system: LocalSystem) -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set; a second signal ends the roles by force."""
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            system.stop()
        stopping.set()

    previous = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        # Stopped here, while a second signal still reaches the handler above.
        stopping.set()
        system.stop()
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Give a function that shows what is being waited for: a moving bar, or lines in a log."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    if not err().is_terminal:
        last = ""

        def say_once(text: str) -> None:
            nonlocal last
            if text != last:
                last = text
                show_note(text)

        yield say_once
        return
    columns = (BarColumn(bar_width=24), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err(), transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda text: progress.update(task, description=text)


def _show_how_to_talk(system: LocalSystem, command: str) -> None:
    from rich.box import HORIZONTALS
    from rich.panel import Panel
    from rich.text import Text

    from rejoinder.gateway.auth import load_keys

    api = f"{system.address}/v1"
    policy = system.config.model.policy
    keyed = bool(load_keys(system.config.gateway))
    header = '\n     -H "Authorization: Bearer $KEY" \\' if keyed else ""
    key = '"<your key>"' if keyed else '"unused"'
    text = (
        f"{command} chat\n\n"
        f"curl -N {api}/chat/completions \\\n"
        f'     -H "Content-Type: application/json" \\{header}\n'
        f'     -d \'{{"model": "{policy}", "stream": true,\n'
        '          "messages": [{"role": "user", "content": "Hello! Who are you?"}]}\'\n\n'
        "from openai import OpenAI\n"
        f'client = OpenAI(base_url="{api}", api_key={key})\n\n'
        f"{command} status          is it learning?"
    )
    # No side lines: the commands are there to be copied.
    title = f"ready at {api}"
    out().print(Panel(Text(text), HORIZONTALS, title=title, expand=False, border_style="green"))


def _watch(system: LocalSystem, journal: SqlJournal, stopping: threading.Event) -> None:
    """Supervise until told to stop, with one line of status."""
    from rich.live import Live

    if not err().is_terminal:
        _watch_plainly(system, journal, stopping)
        return
    with Live(console=err(), auto_refresh=False, transient=True) as live:
        due = 0.0
        while not stopping.wait(_TICK_S):
            for event in system.watch():
                show_note(system.told(event))
            if time.monotonic() >= due:
                live.update(_status_line(system, journal), refresh=True)
                due = time.monotonic() + _STATUS_S


def _watch_plainly(system: LocalSystem, journal: SqlJournal, stopping: threading.Event) -> None:
    """Print a line whenever a role ends, a version becomes live or the journal cannot be read."""
    due, last = 0.0, ""
    while not stopping.wait(_TICK_S):
        for event in system.watch():
            show_note(system.told(event))
        if time.monotonic() >= due:
            due = time.monotonic() + _STATUS_S
            news = _news(system, journal)
            if news and news != last:
                last = news
                show_note(news)


def _status_line(system: LocalSystem, journal: SqlJournal) -> Text:
    from rich.text import Text

    from rejoinder.cli.status_view import status_line

    try:
        return status_line(_document(system, journal))
    except JournalError as error:  # serving goes on without the journal, and so does supervising
        return Text(f"status unavailable: {error}", style="yellow")


def _news(system: LocalSystem, journal: SqlJournal) -> str:
    """Return what a log should say once: the live version, or why it is not known."""
    try:
        live = _document(system, journal)["live"]
    except JournalError as error:  # as above
        return f"status unavailable: {error}"
    return "" if live is None else f"version {live['version']} is live"


def _document(system: LocalSystem, journal: SqlJournal) -> Json:
    config = system.config
    return journal.status(config.model.policy, config.trainer.max_staleness)
