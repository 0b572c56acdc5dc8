"""``rejoinder eval personas``: all runs of a plan, those that are finished already left alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rejoinder.errors import RejoinderError
from rejoinder.evaluation.live_view import LiveView
from rejoinder.evaluation.personas.described import Described, require_agreement
from rejoinder.evaluation.personas.job import Job
from rejoinder.evaluation.personas.leaving import output_folder
from rejoinder.evaluation.personas.plan import Plan
from rejoinder.evaluation.personas.records import (
    RunRecord,
    read_cut_runs,
    read_runs,
    run_path,
)
from rejoinder.evaluation.personas.report import FailedRun, show_runs
from rejoinder.evaluation.progress import Together, Watcher
from rejoinder.types import Json

_AGAIN = "makes the runs that are missing, each from its start"


def run_benchmark(
    plan: Plan,
    output: Path,
    keep: Path | None = None,
    console: Console | None = None,
) -> Json:
    """Make the runs that are missing, show all of the folder, and return the last line's object.

    A run that fails does not end the others: it is told, and ``failed_runs`` of the object names
    it.

    Args:
        plan: which runs. Data directories that its configurations name are never touched.
        output: folder of one file per run, and of the figure.
        keep: keeps the systems' data there, a directory per run; None: deleted at the end.
        console: where to show it, standard output by default; works without a terminal too.

    Raises:
        RejoinderError: the plan cannot work, runs of the folder or the plan do not go together,
            or no run has ever come to its end.
    """
    plan.check()
    if plan.packed and keep is not None:
        raise RejoinderError(
            "packed runs have no data of systems: leave out the folder to keep it in"
        )
    console = console or Console()
    jobs = [
        Job(plan, group, method, seed, output)
        for group in plan.groups
        for method in plan.methods
        for seed in plan.seeds
    ]
    for job in jobs:
        job.refuse_faults()
    made = [_described(run, output) for run in read_runs(output)]
    read_cut_runs(output)  # one that cannot be read is told now, and not when all have been made
    require_agreement([*made, *(job.described for job in jobs)])
    with output_folder(output, jobs, keep, _AGAIN, console):
        _show_length(plan, sum(not job.is_finished for job in jobs), console)
        failed = (
            _make_packs(jobs, plan, console) if plan.packed else _make_runs(jobs, keep, console)
        )
    runs = read_runs(output)
    if not runs:
        raise RejoinderError(f"no run came to its end: {failed[-1].reason}")
    figure = (output / "curves.png").absolute()
    unfinished = read_cut_runs(output)
    found = show_runs(runs, plan.methods[0].name, console, figure, failed, unfinished)
    # Straight to the file: the console would wrap a long line.
    print(json.dumps(found), file=console.file, flush=True)
    return found


def _show_length(plan: Plan, missing: int, console: Console) -> None:
    """Say how long it may take, as far as the plan's limits tell."""
    if not missing:
        return
    limits = plan.settings
    how = f"{plan.packed} at a time" if plan.packed else "one after the other"
    ends = "once it has converged, or at" if limits.until_converged else "at"
    console.print(
        f"runs to make: {missing}, {how}; each ends {ends} the first of its limits: sessions "
        f"{limits.sessions}, updates {limits.updates}, minutes of learning {limits.minutes:g} (the "
        "start and its measurement come on top)",
        highlight=False,
        soft_wrap=True,
    )


def _make_runs(jobs: Sequence[Job], keep: Path | None, console: Console) -> list[FailedRun]:
    """Make those that are missing, and return those that failed."""
    failed: list[FailedRun] = []
    for number, job in enumerate(jobs, 1):
        place = f"{job.name} ({number} of {len(jobs)})"
        if job.is_finished:
            console.print(f"{place}: finished before", highlight=False, soft_wrap=True)
            continue
        console.print(place, highlight=False, soft_wrap=True)
        try:
            with job.home(keep) as home, LiveView(console) as view:
                job.write(asyncio.run(job.run(home, view)))
        except RejoinderError as error:
            failed.append(job.failed(str(error)))
            console.print(Text(f"{job.name} has failed: {error}"), soft_wrap=True)
    return failed


def _make_packs(jobs: Sequence[Job], plan: Plan, console: Console) -> list[FailedRun]:
    """Make those that are missing, several at a time, and return those that failed."""
    missing = [job for job in jobs if not job.is_finished]
    console.print(f"{len(jobs) - len(missing)} of {len(jobs)} runs finished before")
    if not missing:
        return []
    _warn_of_processors(missing[0], console)
    with LiveView(console) as view:
        found = asyncio.run(_run_pack(missing, plan, view))
    failed: list[FailedRun] = []
    for job, error in zip(missing, found, strict=True):
        if error is not None:
            failed.append(job.failed(str(error)))
            console.print(Text(f"{job.name} has failed: {error}"), soft_wrap=True)
    return failed


def _warn_of_processors(job: Job, console: Console) -> None:
    from rejoinder.models.loading import pick_device

    if pick_device(job.config(Path()).model).type != "cpu":
        return
    console.print(
        "packed runs are made for a GPU, and these have none: all of a pack wait for each other, "
        "so that a single update may take many minutes; give a smaller --packed, or leave it out",
        style="yellow",
        soft_wrap=True,
    )


async def _run_pack(
    jobs: Sequence[Job], plan: Plan, watcher: Watcher
) -> list[RejoinderError | None]:
    """Make runs side by side; return why each has failed, if it has."""
    from rejoinder.evaluation.pack.pack import Pack

    together = Together(watcher, len(jobs))
    pack = Pack([job.config(Path()) for job in jobs], plan.settings.updates, plan.packed)
    return await pack.run([job.run_packed(together) for job in jobs])


def _described(run: RunRecord, folder: Path) -> Described:
    path = run_path(folder, run.personas, run.method, run.seed)
    return Described(str(path), run.personas, run.method, run.settings)
