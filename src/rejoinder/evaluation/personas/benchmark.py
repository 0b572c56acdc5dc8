"""``rejoinder eval personas``: all runs of a plan, those that are finished already left alone."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

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
from rejoinder.evaluation.personas.records import (
    RunRecord,
    cut_path,
    read_runs,
    run_path,
    write_run,
)
from rejoinder.evaluation.personas.report import FailedRun, show_runs
from rejoinder.evaluation.personas.run import POLL_S, RunSpec, run_once
from rejoinder.evaluation.personas.settings import DEFAULT, BenchmarkSettings, system_config
from rejoinder.evaluation.personas.speakers import PlayedBy, Scripted, SpeakerOf
from rejoinder.evaluation.progress import Snapshot, Together, Watcher
from rejoinder.evaluation.system import with_system
from rejoinder.evaluation.watch import JournalView
from rejoinder.launch.checks import refuse_faults
from rejoinder.launch.system import LocalSystem
from rejoinder.net import is_local
from rejoinder.types import Json

if TYPE_CHECKING:  # PyTorch takes seconds to import, and runs one by one do not need it here
    from rejoinder.evaluation.pack.pack import Work
    from rejoinder.evaluation.pack.seat import Seat

_LABEL = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An HTTP API and its key."""

    url: str
    """``http://host:port``, or with a path, as in ``https://host/api``; ``/v1`` may follow."""
    key: str | None = field(default=None, repr=False)
    model: str | None = None

    @property
    def root(self) -> str:
        """The address without ``/v1``.

        Raises:
            ConfigError: it is no such address.
        """
        root = self.url.rstrip("/").removesuffix("/v1")
        parts = urlsplit(root)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
            raise ConfigError(f"{self.url!r} is not of the form http://host:port/v1")
        if "@" in parts.netloc:  # it would be kept with every run
            raise ConfigError("give the address of an endpoint without a key or password in it")
        return root

    def client(self) -> ChatClient:
        """Return a client for it, to be entered."""
        return ChatClient(self.root, self.key)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which runs to make: every group of personas with every algorithm and seed."""

    groups: tuple[tuple[Persona, ...], ...]
    """Personas of a group talk to one system, mixed."""
    algorithms: tuple[str, ...] = ("binary",)
    seeds: tuple[int, ...] = (0,)
    settings: BenchmarkSettings = DEFAULT
    label: str | None = None
    """What reports call the method, where the algorithm's name does not say it."""
    gateway: Endpoint | None = None
    """A running one; None: each run starts a system of its own."""
    voice: Endpoint | None = None
    """A model that plays the people; None: phrasebooks speak."""
    external_voice: bool = False
    """Whether ``voice`` may be off this machine, where conversations go then."""
    packed: int = 0
    """Runs made at one time, side by side on one device; 0: one by one, each with a whole system
    of its own."""

    def check(self) -> None:
        """Refuse what cannot work, before anything is started.

        Raises:
            ConfigError: with what to change.
        """
        if not self.groups:
            raise ConfigError("name at least one persona")
        for group in self.groups:
            names = [persona.name for persona in group]
            if len(set(names)) < len(names):
                raise ConfigError(f"personas of one run need different names: {', '.join(names)}")
        if self.label is not None and len(self.algorithms) > 1:
            raise ConfigError("a label names one method: give one algorithm with it")
        if self.label is not None and not _LABEL.fullmatch(self.label):
            raise ConfigError(f"the label {self.label!r} names files: use letters, digits, - and _")
        if self.packed and (self.gateway is not None or self.voice is not None):
            raise ConfigError(
                "packed runs are made inside this process: leave out the running gateway and the "
                "model that plays the people"
            )
        if self.gateway is not None:
            self._check_gateway(self.gateway)
        if self.voice is not None:
            host = urlsplit(self.voice.root).hostname or ""
            if not is_local(host) and not self.external_voice:
                raise ConfigError(
                    f"{host} is not this machine, and the people's conversations would go there; "
                    "allow it on purpose if that is wanted"
                )

    def _check_gateway(self, gateway: Endpoint) -> None:
        _ = gateway.root
        runs = len(self.groups) * len(self.algorithms) * len(self.seeds)
        if runs > 1:
            raise ConfigError(
                f"a running gateway keeps what it has learnt, so it can serve one run and not "
                f"{runs}: give one persona (or a joint run), one algorithm and one seed"
            )
        if self.label is None:
            raise ConfigError(
                "a running gateway trains as it is configured, which nobody here knows: give a "
                "label that says what the method is"
            )

    def method(self, algorithm: str) -> str:
        """Return what reports call an algorithm."""
        return self.label or algorithm


def run_benchmark(
    base: Config,
    plan: Plan,
    output: Path,
    keep: Path | None = None,
    console: Console | None = None,
) -> Json:
    """Make the runs that are missing, show all of the folder, and return the last line's object.

    A run that fails does not end the others: it is told, and ``failed_runs`` of the object names
    it.

    Args:
        base: what it sets stands; see ``system_config``. Its data directory is never touched.
        plan: which runs.
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
        _Job(plan, base, group, algorithm, seed, output)
        for group in plan.groups
        for algorithm in plan.algorithms
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
    reference = plan.method(plan.algorithms[0])
    found = show_runs(runs, reference, console, (output / "curves.png").absolute(), failed)
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
        base: Config,
        personas: tuple[Persona, ...],
        algorithm: str,
        seed: int,
        output: Path,
    ) -> None:
        self._plan = plan
        self._base = base
        self._algorithm = algorithm
        self._names = tuple(persona.name for persona in personas)
        method = plan.method(algorithm)
        self.path = run_path(output, self._names, method, seed)
        self.name = f"{'+'.join(self._names)}, {method}, seed {seed}"
        self._spec = RunSpec(method, personas, seed, plan.settings, self._settings(personas))

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
        return system_config(
            self._base, self._plan.settings, self._algorithm, self._spec.seed, home
        )

    def _settings(self, personas: tuple[Persona, ...]) -> Json:
        plan = self._plan
        voice, learner = "phrasebook", plan.gateway
        if plan.voice is not None:
            voice = f"{plan.voice.model} at {plan.voice.root}"
        system: Json = (
            describe_system(self._base, plan.settings, self._algorithm)
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
