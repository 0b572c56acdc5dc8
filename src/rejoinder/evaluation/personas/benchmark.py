"""``rejoinder eval personas``: all runs of a plan, those that are finished already left alone."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from rejoinder.config import Config
from rejoinder.engine.connect import connect_engine
from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.evaluation.client import Asker, ChatClient
from rejoinder.evaluation.live_view import LiveView
from rejoinder.evaluation.personas.described import (
    Described,
    describe,
    describe_system,
    require_agreement,
)
from rejoinder.evaluation.personas.learner import Learner, OwnSystem, RunningGateway
from rejoinder.evaluation.personas.persona import Persona
from rejoinder.evaluation.personas.plan import Endpoint, Method, Plan
from rejoinder.evaluation.personas.records import (
    RunRecord,
    cut_path,
    read_runs,
    run_path,
    write_run,
)
from rejoinder.evaluation.personas.report import FailedRun, show_runs
from rejoinder.evaluation.personas.run import POLL_S, RunSpec, run_once
from rejoinder.evaluation.personas.settings import system_config
from rejoinder.evaluation.personas.speakers import PlayedBy, Scripted, SpeakerOf
from rejoinder.evaluation.progress import Snapshot, Together, Watcher
from rejoinder.evaluation.system import with_system
from rejoinder.evaluation.watch import JournalView
from rejoinder.launch.checks import refuse_faults
from rejoinder.launch.system import LocalSystem
from rejoinder.types import Json

if TYPE_CHECKING:  # PyTorch takes seconds to import, and runs one by one do not need it here
    from rejoinder.evaluation.pack.pack import Work
    from rejoinder.evaluation.pack.seat import Seat


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
        raise ConfigError("packed runs have no data of systems: leave out the folder to keep it in")
    console = console or Console()
    jobs = [
        _Job(plan, group, method, seed, output)
        for group in plan.groups
        for method in plan.methods
        for seed in plan.seeds
    ]
    for job in jobs:
        job.refuse_faults()
    made = [_described(run, output) for run in read_runs(output)]
    require_agreement([*made, *(job.described for job in jobs)])
    failed = _make_packs(jobs, plan, console) if plan.packed else _make_runs(jobs, keep, console)
    runs = read_runs(output)
    if not runs:
        raise RejoinderError(f"no run came to its end: {failed[-1].reason}")
    found = show_runs(
        runs, plan.methods[0].name, console, (output / "curves.png").absolute(), failed
    )
    # Straight to the file: the console would wrap a long line.
    print(json.dumps(found), file=console.file, flush=True)
    return found


def _make_runs(jobs: Sequence[_Job], keep: Path | None, console: Console) -> list[FailedRun]:
    """Make those that are missing, and return those that failed."""
    failed: list[FailedRun] = []
    for number, job in enumerate(jobs, 1):
        place = f"{job.name} ({number} of {len(jobs)})"
        if job.is_finished:
            console.print(f"{place}: finished before", highlight=False, soft_wrap=True)
            continue
        console.print(place, highlight=False, soft_wrap=True)
        try:
            with _home(keep, job.name) as home, LiveView(console) as view:
                job.write(asyncio.run(job.run(home, view)))
        except RejoinderError as error:
            failed.append(job.failed(str(error)))
            console.print(Text(f"{job.name} has failed: {error}"), soft_wrap=True)
    return failed


def _make_packs(jobs: Sequence[_Job], plan: Plan, console: Console) -> list[FailedRun]:
    """Make those that are missing, several at a time, and return those that failed."""
    size = plan.packed
    missing = [job for job in jobs if not job.is_finished]
    console.print(f"{len(jobs) - len(missing)} of {len(jobs)} runs finished before")
    failed: list[FailedRun] = []
    for start in range(0, len(missing), size):
        members = missing[start : start + size]
        console.print(f"runs {start + 1} to {start + len(members)} of {len(missing)}")
        with LiveView(console) as view:
            found = asyncio.run(_run_pack(members, plan.settings.updates, view))
        for job, error in zip(members, found, strict=True):
            if error is not None:
                failed.append(job.failed(str(error)))
                console.print(Text(f"{job.name} has failed: {error}"), soft_wrap=True)
    return failed


async def _run_pack(
    jobs: Sequence[_Job], updates: int, watcher: Watcher
) -> list[RejoinderError | None]:
    """Make runs side by side; return why each has failed, if it has."""
    from rejoinder.evaluation.pack.pack import Pack

    together = Together(watcher, len(jobs))
    pack = Pack([job.config(Path()) for job in jobs], updates)
    return await pack.run([job.run_packed(together) for job in jobs])


def _described(run: RunRecord, folder: Path) -> Described:
    path = run_path(folder, run.personas, run.method, run.seed)
    return Described(str(path), run.personas, run.method, run.settings)


class _Job:
    """One run of a plan."""

    def __init__(
        self,
        plan: Plan,
        personas: tuple[Persona, ...],
        method: Method,
        seed: int,
        output: Path,
    ) -> None:
        self._plan = plan
        self._method = method
        self._names = tuple(persona.name for persona in personas)
        self.path = run_path(output, self._names, method.name, seed)
        self.name = f"{'+'.join(self._names)}, {method.name}, seed {seed}"
        self._spec = RunSpec(method.name, personas, seed, plan.settings, self._settings(personas))

    @property
    def is_finished(self) -> bool:
        """Whether the run has been made before."""
        return self.path.exists()

    @property
    def described(self) -> Described:
        """The run by its settings."""
        spec = self._spec
        return Described(f"this run ({self.name})", self._names, spec.method, spec.described)

    def failed(self, reason: str) -> FailedRun:
        """Return that the run has come to no end."""
        return FailedRun(self._names, self._spec.method, self._spec.seed, reason)

    def refuse_faults(self) -> None:
        """Refuse what cannot learn before anything is started."""
        if self._plan.gateway is None:
            refuse_faults(self.config(Path()))
        if self._plan.packed:
            from rejoinder.evaluation.pack.pack import refuse_unpackable

            refuse_unpackable(self.config(Path()))

    def config(self, home: Path) -> Config:
        """Return the configuration of the run's own system, with its data in ``home``."""
        method, seed = self._method, self._spec.seed
        return system_config(method.config, self._plan.settings, method.algorithm, seed, home)

    def _settings(self, personas: tuple[Persona, ...]) -> Json:
        plan = self._plan
        voice, learner = "phrasebook", plan.gateway
        if plan.voice is not None:
            voice = f"{plan.voice.model} at {plan.voice.root}"
        system: Json = (
            describe_system(self._method.config, plan.settings, self._method.algorithm)
            if learner is None
            else {"gateway": learner.root}
        )
        if plan.packed:
            system["packed"] = True
        return describe(personas, plan.settings, voice, system)

    async def run(self, home: Path, watcher: Watcher) -> RunRecord:
        """Make the run; meanwhile ``cut_path`` holds it up to its newest measurement.

        Raises:
            RejoinderError: it cannot come to its end.
        """
        async with _people(self._plan.voice) as voice:
            speaker_of = voice or Scripted
            if self._plan.gateway is None:
                record = await self._run_own_system(home, speaker_of, watcher)
            else:
                async with self._plan.gateway.client() as client:
                    record = await self._run_once(
                        client, RunningGateway(client), speaker_of, watcher
                    )
            return replace(record, fallbacks=0 if voice is None else voice.fallbacks)

    def write(self, record: RunRecord) -> None:
        """Write the run that has come to its end."""
        write_run(record, self.path)
        cut_path(self.path).unlink(missing_ok=True)

    def run_packed(self, together: Together) -> Work[None]:
        """Return the run as work at a seat of a pack: it is written as soon as it ends."""
        from rejoinder.evaluation.pack.pack import POLL_S

        watcher = together.one()

        async def work(seat: Seat) -> None:
            self.write(await self._run_once(seat, seat, Scripted, watcher, POLL_S))

        return work

    async def _run_once(
        self,
        client: Asker,
        learner: Learner,
        speaker_of: SpeakerOf,
        watcher: Watcher,
        poll_s: float = POLL_S,
    ) -> RunRecord:
        unfinished = cut_path(self.path)
        return await run_once(
            self._spec,
            client,
            learner,
            speaker_of,
            watcher,
            poll_s,
            on_measured=lambda record: write_run(record, unfinished),
        )

    async def _run_own_system(
        self, home: Path, speaker_of: SpeakerOf, watcher: Watcher
    ) -> RunRecord:
        async def work(system: LocalSystem) -> RunRecord:
            engine = connect_engine(system.config)
            try:
                async with ChatClient(system.address) as client:
                    with JournalView(system.config) as journal:
                        learner = OwnSystem(system.config, engine, journal)
                        return await self._run_once(client, learner, speaker_of, watcher)
            finally:
                await engine.close()

        watcher.show(Snapshot("start", 0, 1))
        return await with_system(self.config(home), lambda _: None, work)


@asynccontextmanager
async def _people(voice: Endpoint | None) -> AsyncIterator[PlayedBy | None]:
    """Give the model that plays the people, where there is one."""
    if voice is None:
        yield None
        return
    async with voice.client() as client:
        yield PlayedBy(client, voice.model or "default")


@contextmanager
def _home(keep: Path | None, name: str) -> Iterator[Path]:
    if keep is not None:
        home = keep / name.replace(", ", ".").replace(" ", "-")
        if (home / "journal.db").exists():
            raise RejoinderError(f"{home} has data of an earlier run: move it away")
        yield home
    else:
        with tempfile.TemporaryDirectory(prefix="rejoinder-personas-") as made:
            yield Path(made)
