"""The ``rejoinder`` command. Rooms are imported when a command needs them, so help is instant."""

from __future__ import annotations

import contextlib
import inspect
import sys
import time
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rejoinder import __version__
from rejoinder.cli import chat, config, demo, doctor, explain, policy, records, roles, status, up
from rejoinder.cli import eval as evaluation
from rejoinder.cli.misplaced import add_remedy, corrected, is_misplaced
from rejoinder.cli.settings import Settings
from rejoinder.cli.terminal import show_error
from rejoinder.errors import EXIT_CONFIG, EXIT_REFUSED, ConfigError, RejoinderError

EXIT_FAULT = 1
EXIT_INTERRUPTED = 130
"""As shells tell of a program that SIGINT has ended."""
EXIT_CODES = {
    "0": "done; of `doctor`: nothing failed, though there may be warnings",
    str(EXIT_FAULT): "`doctor` found what must be changed, a question was answered with no, the "
    "reader of the output left, or the program has a fault, which is told with the place of its "
    "trace",
    str(EXIT_REFUSED): "refused: the arguments, or what they name or found, do not allow it (a "
    "file that is there already, a version that is not, a gateway that does not answer); of "
    "`eval personas` also: a run failed",
    str(EXIT_CONFIG): "the configuration cannot work: `rejoinder.toml`, the file of a persona or "
    "its tasks, or a variable of the environment has to be changed first",
    str(
        EXIT_INTERRUPTED
    ): "ended by Ctrl-C before it was done; `up`, `chat` and `--watch` are done "
    "then, and end with 0",
    "143": "`demo` or `eval personas`: ended by SIGTERM; `up` and single roles are done then, too",
}
"""What each exit code says, of every command; for the reference."""
_ARGUMENTS = f"{__name__}.arguments"
"""Where a call keeps its arguments, to be shown with an error of their order."""


class _Commands(TyperGroup):
    """Turns errors into a line and an exit code, for every command in one place."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options of every command; see ``TyperGroup``."""
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; see ``TyperGroup``."""
        try:
            return super().invoke(ctx)
        except RejoinderError as error:
            settings: Settings | None = ctx.obj
            told = str(error)
            # A role has the file that ``up`` made for it, which is nothing that a person names.
            show_error(told if settings is None or settings.is_role else settings.spelled(told))
            code = EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_REFUSED
            raise typer.Exit(code) from error
        except KeyboardInterrupt:
            show_error("stopped by Ctrl-C")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:  # the reader of our output has left, as `head` does
            sys.stderr.close()
            raise typer.Exit(EXIT_FAULT) from None
        except Exception as error:
            if is_misplaced(option := getattr(error, "option_name", "")):
                line = corrected(ctx.meta[_ARGUMENTS])
                show_error(f"{option} goes before the command: `{line}`")
                raise typer.Exit(EXIT_REFUSED) from None
            if isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "exit_code"):
                add_remedy(error)
                raise
            _report_fault(ctx.obj, error)
            raise typer.Exit(EXIT_FAULT) from error


app = typer.Typer(
    name="rejoinder",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Serve a model, judge its answers by the replies they get, and train it while it serves.",
    epilog="Start with [bold]rejoinder up[/bold], then [bold]rejoinder chat[/bold].",
)


@app.callback()
def common(
    ctx: typer.Context,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", help="Configuration file (default: ./rejoinder.toml, if there)."),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(
            help="Data directory (default: home of the file, REJOINDER_HOME, ~/.rejoinder)."
        ),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version)
    ] = False,
) -> None:
    """Options of every command."""
    ctx.obj = Settings(config_file, home)
    _find_modules_here()


def _find_modules_here() -> None:
    """Let judges and scorers of the user's own be found in the directory of the start.

    The installed script has its own directory on the path instead. Last, so that no file here can
    stand in for an installed package.
    """
    with contextlib.suppress(FileNotFoundError):  # a deleted directory holds no modules
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.append(here)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - the form of an option's callback
    if wanted:
        typer.echo(f"rejoinder {__version__}")
        raise typer.Exit


def _report_fault(settings: Settings | None, error: Exception) -> None:
    """Write the trace of an error nobody expected to a file, and say where."""
    text = "".join(traceback.format_exception(error))
    told = f"unexpected fault: {type(error).__name__}: {error}"
    if settings is not None and settings.is_role:
        sys.stderr.write(text)
        show_error(told)
        return
    try:
        file = (settings or Settings(None, None)).fault_log()
        with file.open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {sys.argv[1:]}\n{text}\n")
    except (
        OSError,
        RejoinderError,
    ):  # no place to write to: the trace itself is better than nothing
        sys.stderr.write(text)
        return
    show_error(f"{told}; the trace is in {file}")


def _unwrap(commands: typer.Typer) -> None:
    """Let help fill the terminal's width: the lines of a docstring would be kept, and wrapped."""
    for command in commands.registered_commands:
        text = command.help or inspect.getdoc(command.callback) or ""
        command.help = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _unwrap(group.typer_instance)


up.add_to(app)
chat.add_to(app)
status.add_to(app)
app.add_typer(policy.app, name="policy", rich_help_panel="Look and decide")
app.add_typer(explain.app, name="explain", rich_help_panel="Look and decide")
app.add_typer(records.app, name="records", rich_help_panel="Look and decide")
app.add_typer(config.app, name="config", rich_help_panel="Set up")
doctor.add_to(app)
demo.add_to(app)
app.add_typer(evaluation.app, name="eval", rich_help_panel="Look and decide")
roles.add_to(app)
_unwrap(app)
