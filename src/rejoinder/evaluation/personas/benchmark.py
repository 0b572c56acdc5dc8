"""``rejoinder eval personas``: all runs of a plan, those that are finished already left alone."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from rejoinder.config import Config
from rejoinder.engine.connect import connect_engine
from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.evaluation.client import ChatClient
from rejoinder.evaluation.live_view import LiveView
from rejoinder.evaluation.personas.learner import OwnSystem, RunningGateway
from rejoinder.evaluation.personas.persona import Persona
from rejoinder.evaluation.personas.records import (
    RunRecord,
    read_run,
    read_runs,
    run_path,
    write_run,
)
from rejoinder.evaluation.personas.report import show_runs
from rejoinder.evaluation.personas.run import RunSpec, run_once
from rejoinder.evaluation.personas.settings import DEFAULT, BenchmarkSettings, system_config
from rejoinder.evaluation.personas.speakers import PlayedBy, Scripted, SpeakerOf
from rejoinder.evaluation.progress import Snapshot, Watcher
from rejoinder.evaluation.questions import Split
from rejoinder.evaluation.system import with_system
from rejoinder.evaluation.watch import JournalView
from rejoinder.launch.checks import refuse_faults
from rejoinder.launch.system import LocalSystem
from rejoinder.net import is_local
from rejoinder.types import Json

_LABEL = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An HTTP API and its key."""

    url: str
    """``http://host:port`` with or without ``/v1``."""
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
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path:
            raise ConfigError(f"{self.url!r} is not of the form http://host:port/v1")
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
        runs = len(self.groups) * len(self.algorithms) * len(self.seeds)
        if self.gateway is not None:
            _ = self.gateway.root
            if runs > 1:
                raise ConfigError(
                    f"a running gateway keeps what it has learnt, so it can serve one run and not "
                    f"{runs}: give one persona (or a joint run), one algorithm and one seed"
                )
        if self.voice is not None:
            host = urlsplit(self.voice.root).hostname or ""
            if not is_local(host) and not self.external_voice:
                raise ConfigError(
                    f"{host} is not this machine, and the people's conversations would go there; "
                    "allow it on purpose if that is wanted"
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

    Args:
        base: what it sets stands; see ``system_config``. Its data directory is never touched.
        plan: which runs.
        output: folder of one file per run, and of the figure.
        keep: keeps the systems' data there, a directory per run; None: deleted at the end.
        console: where to show it, standard output by default; works without a terminal too.

    Raises:
        RejoinderError: the plan cannot work, a run in the folder had other settings, or a role
            cannot start.
    """
    plan.check()
    console = console or Console()
    todo = [
        _Job(plan, base, group, algorithm, seed, output)
        for group in plan.groups
        for algorithm in plan.algorithms
        for seed in plan.seeds
    ]
    for job in todo:
        job.refuse_faults()
    for number, job in enumerate(todo, 1):
        place = f"{job.name} ({number} of {len(todo)})"
        if job.is_finished():
            console.print(f"{place}: finished before", highlight=False, soft_wrap=True)
            continue
        console.print(place, highlight=False, soft_wrap=True)
        with _home(keep, job.name) as home, LiveView(console) as view:
            write_run(asyncio.run(job.run(home, view)), job.path)
    reference = plan.method(plan.algorithms[0])
    found = show_runs(read_runs(output), reference, console, (output / "curves.png").absolute())
    # Straight to the file: the console would wrap a long line.
    print(json.dumps(found), file=console.file, flush=True)
    return found


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
        names = tuple(persona.name for persona in personas)
        method = plan.method(algorithm)
        self.path = run_path(output, names, method, seed)
        self.name = f"{'+'.join(names)}, {method}, seed {seed}"
        self._spec = RunSpec(method, personas, seed, plan.settings, self._described(personas))

    def _config(self, home: Path) -> Config:
        return system_config(
            self._base, self._plan.settings, self._algorithm, self._spec.seed, home
        )

    def refuse_faults(self) -> None:
        """Refuse what cannot learn before anything is started."""
        if self._plan.gateway is None:
            refuse_faults(self._config(Path()))

    def is_finished(self) -> bool:
        """Whether the run has been made before.

        Raises:
            RejoinderError: it has, with other settings.
        """
        if not self.path.exists():
            return False
        before, now = read_run(self.path).settings, self._spec.described
        changed = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
        if changed:
            raise RejoinderError(
                f"{self.path} was made with other settings ({', '.join(changed)}): name another "
                "output folder or label, or move the file away"
            )
        return True

    def _described(self, personas: Sequence[Persona]) -> Json:
        """Return all that decides how the run goes, but not where it is kept, as plain JSON."""
        plan = self._plan
        described: Json = {
            "algorithm": self._algorithm,
            "benchmark": asdict(plan.settings),
            "personas": {persona.name: persona.digest for persona in personas},
            "tasks": {persona.name: _tasks_digest(persona) for persona in personas},
            "voice": "phrasebook"
            if plan.voice is None
            else f"{plan.voice.model} at {plan.voice.root}",
        }
        if plan.gateway is not None:
            return described | {"gateway": plan.gateway.root}
        config = system_config(self._base, plan.settings, self._algorithm, 0, Path())
        shown = config.model_dump(mode="json", include={"model", "judge", "trainer"})
        return described | shown

    async def run(self, home: Path, watcher: Watcher) -> RunRecord:
        """Make the run."""
        async with _people(self._plan.voice) as voice:
            speaker_of = voice or Scripted
            if self._plan.gateway is None:
                record = await self._run_own_system(home, speaker_of, watcher)
            else:
                async with self._plan.gateway.client() as client:
                    learner = RunningGateway(client)
                    record = await run_once(self._spec, client, learner, speaker_of, watcher)
            return replace(record, fallbacks=0 if voice is None else voice.fallbacks)

    async def _run_own_system(
        self, home: Path, speaker_of: SpeakerOf, watcher: Watcher
    ) -> RunRecord:
        async def work(system: LocalSystem) -> RunRecord:
            engine = connect_engine(system.config)
            try:
                async with ChatClient(system.address) as client:
                    with JournalView(system.config) as journal:
                        learner = OwnSystem(system.config, engine, journal)
                        return await run_once(self._spec, client, learner, speaker_of, watcher)
            finally:
                await engine.close()

        watcher.show(Snapshot("start", 0, 1))
        return await with_system(self._config(home), lambda _: None, work)


def _tasks_digest(persona: Persona) -> str:
    """Tell task sets apart by what they ask: a file may have changed under its name."""
    texts = [f"{task.text} {task.answer}" for split in Split for task in persona.load_tasks(split)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


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
