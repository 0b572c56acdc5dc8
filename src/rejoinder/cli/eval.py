"""``rejoinder eval personas``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rejoinder.cli.settings import settings_of
from rejoinder.cli.terminal import leave_on_sigterm, out
from rejoinder.errors import EXIT_REFUSED, ConfigError, RejoinderError

if TYPE_CHECKING:  # imported where it is needed: commands start fast
    from rejoinder.config import Config
    from rejoinder.evaluation.personas.plan import Method

app = typer.Typer(no_args_is_help=True)

_PEOPLE, _LIMITS, _ELSEWHERE = "Who talks", "How long", "Elsewhere"


@app.callback()
def group() -> None:
    """Measure what the system learns from people."""


@app.command()
def personas(
    ctx: typer.Context,
    persona: Annotated[
        list[str] | None,
        typer.Option(
            help="Name, or path of a .toml file; give it again for more.", rich_help_panel=_PEOPLE
        ),
    ] = None,
    show_list: Annotated[
        bool,
        typer.Option("--list", help="Show the personas there are, or those of --persona, and end."),
    ] = False,
    joint: Annotated[
        bool,
        typer.Option("--joint", help="All personas talk to one system.", rich_help_panel=_PEOPLE),
    ] = False,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(help="(default: trainer.algorithm); give it again to compare."),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A method by its own configuration file; give it again to compare.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="What the report calls the method (default: the algorithm)."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 1,
    first_seed: Annotated[
        int, typer.Option(min=0, help="Seed of the first; then counting up.")
    ] = 0,
    sessions: Annotated[int, typer.Option(min=1, rich_help_panel=_LIMITS)] = 200,
    updates: Annotated[int, typer.Option(min=1, rich_help_panel=_LIMITS)] = 24,
    minutes: Annotated[float, typer.Option(min=0.1, max=525_600, rich_help_panel=_LIMITS)] = 60.0,
    people: Annotated[
        int, typer.Option(min=1, help="Who talk at once.", rich_help_panel=_PEOPLE)
    ] = 8,
    answers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Answers of a session, at most (default: as many as the persona bears).",
            rich_help_panel=_PEOPLE,
        ),
    ] = None,
    heldout: Annotated[
        int, typer.Option(min=1, help="Held-out tasks per persona and measurement.")
    ] = 48,
    measure_every: Annotated[int, typer.Option(min=1, help="Updates between measurements.")] = 1,
    until_converged: Annotated[
        bool,
        typer.Option(
            "--until-converged",
            help="End a run as soon as its personas have converged.",
            rich_help_panel=_LIMITS,
        ),
    ] = False,
    temperature: Annotated[
        float, typer.Option(min=0.01, max=2.0, help="Of all answers, learning and held out.")
    ] = 0.6,
    packed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Make so many runs at one time, side by side on one GPU (default: one by one, "
            "each with a whole system).",
        ),
    ] = 0,
    output: Annotated[
        Path, typer.Option(help="Folder of results; runs found there are not made again.")
    ] = Path("rejoinder-personas"),
    keep: Annotated[
        Path | None, typer.Option(help="Keep the systems' data there (default: delete it).")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="A running gateway, which learns as it is configured; needs --label (default: "
            "start a system; a key is taken from REJOINDER_API_KEY).",
            rich_help_panel=_ELSEWHERE,
        ),
    ] = None,
    person_url: Annotated[
        str | None,
        typer.Option(
            help="OpenAI-compatible endpoint of a model that plays the people "
            "(default: phrasebooks).",
            rich_help_panel=_ELSEWHERE,
        ),
    ] = None,
    person_model: Annotated[
        str | None, typer.Option(help="Its name there.", rich_help_panel=_ELSEWHERE)
    ] = None,
    person_key_env: Annotated[
        str | None,
        typer.Option(help="Environment variable of its key.", rich_help_panel=_ELSEWHERE),
    ] = None,
    allow_external: Annotated[
        bool,
        typer.Option(
            "--allow-external",
            help="Let the people's model be off this machine.",
            rich_help_panel=_ELSEWHERE,
        ),
    ] = False,
) -> None:
    """Let simulated people talk to the system, train it, and measure what it learns, and how fast.

    Each run is a file in the output folder; a run that is there already is not made again. A table,
    a figure and the last line, one JSON object, tell of all runs in the folder. The configuration
    says how the system judges and trains.
    """
    from rejoinder.evaluation.personas.benchmark import run_benchmark
    from rejoinder.evaluation.personas.persona import load_persona, shipped_personas
    from rejoinder.evaluation.personas.plan import Endpoint, Plan
    from rejoinder.evaluation.personas.report import show_personas
    from rejoinder.evaluation.personas.settings import DEFAULT, BenchmarkSettings
    from rejoinder.evaluation.questions import Split

    if show_list:
        shown = [load_persona(name) for name in persona or shipped_personas()]
        for one in shown:  # a fault of its tasks is told here, too
            for split in Split:
                one.load_tasks(split)
        show_personas(shown, out())
        return
    if not persona:
        raise RejoinderError("name at least one with --persona; --list shows those there are")
    if person_url is None and (person_model or person_key_env):
        raise RejoinderError("--person-model and --person-key-env need --person-url: who answers?")
    if person_url is not None and person_model is None:
        raise RejoinderError("--person-url needs --person-model: the name that the endpoint serves")
    base = settings_of(ctx).config
    if url is not None and (label is None or variant):
        raise RejoinderError(
            "a running gateway trains as it is configured, which nobody here knows: give a "
            "--label that says what the method is, and no --variant"
        )
    methods = _methods(base, algorithm or [], variant or [], label)
    chosen = tuple(load_persona(name) for name in dict.fromkeys(persona))
    plan = Plan(
        groups=(chosen,) if joint else tuple((one,) for one in chosen),
        methods=methods,
        seeds=tuple(range(first_seed, first_seed + seeds)),
        settings=BenchmarkSettings(
            sessions=sessions,
            updates=updates,
            minutes=minutes,
            heldout=heldout,
            measure_every=measure_every,
            until_converged=until_converged,
            people=people,
            answers=answers,
            temperature=temperature,
            # A pack answers all that ask in one go, so measuring by parts costs it rounds.
            measure_at_once=heldout if packed else DEFAULT.measure_at_once,
        ),
        gateway=None if url is None else Endpoint(url, os.environ.get("REJOINDER_API_KEY")),
        voice=(
            None
            if person_url is None
            else Endpoint(person_url, _secret(person_key_env), person_model)
        ),
        external_voice=allow_external,
        packed=packed,
    )
    leave_on_sigterm()
    if run_benchmark(plan, output=output, keep=keep)["failed_runs"]:
        raise typer.Exit(EXIT_REFUSED)


def _methods(
    base: Config, algorithms: Sequence[str], variants: Sequence[str], label: str | None
) -> tuple[Method, ...]:
    """Return the methods that are asked for: algorithms first, then variants.

    Raises:
        RejoinderError: they cannot be told apart, or a file cannot be read.
    """
    from rejoinder.config import load_config
    from rejoinder.evaluation.personas.plan import Method

    wanted = list(dict.fromkeys(algorithms))
    if not wanted and not variants:
        wanted = [base.trainer.algorithm]
    if label is not None and len(wanted) != 1:
        raise RejoinderError("--label names one method: give one --algorithm with it")
    methods = [Method(label or name, name, base) for name in wanted]
    for text in variants:
        name, mark, file = text.partition("=")
        if not (name and mark and file):
            raise RejoinderError(f"--variant {text!r} is not of the form NAME=FILE")
        methods.append(Method.of(name, load_config(Path(file))))
    return tuple(methods)


def _secret(variable: str | None) -> str | None:
    """Return the value of an environment variable that must be set."""
    if variable is None:
        return None
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(f"--person-key-env: the variable {variable} is not set")
    return value
