"""``make demo``: one run of the persona benchmark, with what it taught shown side by side.

People who want one short sentence ask everyday questions and say in words what they think of each
answer. Nothing in their questions tells the wish; the system learns it from what they say. Held-out
questions are measured before and after, in turns that never train.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rejoinder.config import Config, LossConfig, TrainerConfig
from rejoinder.evaluation.demo_report import show_demo
from rejoinder.evaluation.live_view import LiveView
from rejoinder.evaluation.personas.described import describe_system, differences
from rejoinder.evaluation.personas.job import Job
from rejoinder.evaluation.personas.leaving import output_folder
from rejoinder.evaluation.personas.persona import load_persona
from rejoinder.evaluation.personas.plan import Method, Plan
from rejoinder.evaluation.personas.settings import BenchmarkSettings
from rejoinder.launch.toml import toml_value
from rejoinder.types import Json

PERSONA, METHOD = "short-sentence", "combine"
SETTINGS = BenchmarkSettings(
    answers=1,
    updates=12,
    measure_every=12,
    heldout=100,
    minutes=7.0,
    sessions=1000,
    temperature=0.35,
)
"""Only the start and the end are measured, to save time, and sessions are no limit."""
TOOK = "504 s on two cores of a shared host (AMD EPYC)"
"""As the README has it."""
TRAINER = TrainerConfig(verdict_weight=2.0, loss=LossConfig(aggregation="token_mean"))
"""Where it trains otherwise than the benchmark: hints have a greater say, since none of the start
model's answers please and it heeds this wish; with ``token_mean`` its figures were measured."""


def run_demo(
    base: Config,
    settings: BenchmarkSettings = SETTINGS,
    seed: int = 0,
    output: Path = Path("rejoinder-demo"),
    keep: Path | None = None,
    console: Console | None = None,
) -> Json:
    """Run the demonstration, print everything, and return the last line's object.

    Args:
        base: gives model, device and engine. How to train is the benchmark's, but for ``TRAINER``;
            its data directory is never touched.
        settings: of the run.
        seed: of people, tasks, words, training and the sampling of held-out answers.
        output: folder of the run's file and its figure; those of the same seed are written anew.
        keep: keeps the system's data there; None: deleted at the end.
        console: where to show it, standard output by default; works without a terminal too.

    Raises:
        RejoinderError: a role cannot start, or keeps ending.
    """
    console = console or Console()
    config = Config(model=base.model, engine=base.engine, trainer=TRAINER)
    plan = Plan(
        groups=((load_persona(PERSONA),),),
        methods=(Method(METHOD, METHOD, config),),
        seeds=(seed,),
        settings=settings,
    )
    plan.check()
    job = Job(plan, plan.groups[0], plan.methods[0], seed, output)
    job.refuse_faults()
    with output_folder(output, [job], keep, "begins anew", console):
        _show_plan(plan, console)
        started = time.monotonic()
        with job.home(keep) as home, LiveView(console) as view:
            record = asyncio.run(job.run(home, view))
        job.write(record)
    figure = (output / f"seed-{seed}.png").absolute()
    found = show_demo(record, time.monotonic() - started, console, figure)
    found["run"] = str(job.path.absolute())
    # Straight to the file: the console would wrap a long line.
    print(json.dumps(found), file=console.file, flush=True)
    return found


def _show_plan(plan: Plan, console: Console) -> None:
    """Print who talks, and the system's configuration where it differs from the defaults."""
    (persona,), (method,) = plan.groups[0], plan.methods
    system = describe_system(method.config, plan.settings, method.algorithm)
    shown = [
        f"persona {persona.name}: {persona.description}",
        f"seed {plan.seeds[0]}; the system's configuration, where it differs from the defaults:",
        *(f"  {line}" for line in _changed(system["configuration"])),
    ]
    if plan.settings == SETTINGS:
        shown.append(f"with the model that comes along this took {TOOK}")
    console.print(Text("\n".join(shown)), soft_wrap=True)


def _changed(configuration: Json) -> list[str]:
    """Return what differs from the defaults, as lines of TOML with dotted keys."""
    lines = []
    for key in differences(configuration, Config().model_dump(mode="json")):
        value: object = configuration
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            lines.append(f"{key} = {toml_value(value)}")
    return lines
