"""One run of a plan: its configuration, its own system, its people, and the file it becomes."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rejoinder.config import Config
from rejoinder.engine.connect import connect_engine
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.client import Asker, ChatClient
from rejoinder.evaluation.personas.described import Described, describe, describe_system
from rejoinder.evaluation.personas.learner import Learner, OwnSystem, RunningGateway
from rejoinder.evaluation.personas.persona import Persona
from rejoinder.evaluation.personas.plan import Endpoint, Method, Plan
from rejoinder.evaluation.personas.records import RunRecord, cut_path, run_path, write_run
from rejoinder.evaluation.personas.report import FailedRun
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


class Job:
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
        self.unfinished_path = cut_path(self.path).absolute()
        """Has a run that goes on or was broken off, up to its newest measurement."""
        self.is_cut = False
        """Whether this run, and not an earlier one, has written it and not ended since."""
        self.goes_on = False
        """Whether it is being made: what is at ``path`` meanwhile is of an earlier call."""
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

    @contextmanager
    def home(self, keep: Path | None) -> Iterator[Path]:
        """Give a folder for the data of the run's system.

        Args:
            keep: it is made there and stays; None: it is deleted at the end.

        Raises:
            RejoinderError: the folder has data of an earlier run.
        """
        if keep is None:
            with tempfile.TemporaryDirectory(prefix="rejoinder-run-") as made:
                yield Path(made)
            return
        home = keep / self.name.replace(", ", ".").replace(" ", "-")
        if (home / "journal.db").exists():
            raise RejoinderError(f"{home} has data of an earlier run: move it away")
        yield home

    async def run(self, home: Path, watcher: Watcher) -> RunRecord:
        """Make the run; meanwhile ``unfinished_path`` holds it up to its newest measurement.

        Raises:
            RejoinderError: it cannot come to its end.
        """
        self.goes_on = True
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
        self.unfinished_path.unlink(missing_ok=True)
        self.is_cut = self.goes_on = False

    def run_packed(self, together: Together) -> Work[None]:
        """Return the run as work at a seat of a pack: it is written as soon as it ends."""
        from rejoinder.evaluation.pack.pack import POLL_S

        watcher = together.one()

        async def work(seat: Seat) -> None:
            self.goes_on = True
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
        def keep(record: RunRecord) -> None:
            write_run(record, self.unfinished_path)
            self.is_cut = True

        return await run_once(
            self._spec,
            client,
            learner,
            speaker_of,
            watcher,
            poll_s,
            on_measured=keep,
        )

    async def _run_own_system(
        self, home: Path, speaker_of: SpeakerOf, watcher: Watcher
    ) -> RunRecord:
        async def work(system: LocalSystem) -> RunRecord:
            watcher.show(Snapshot("start", 1, 1))
            engine = connect_engine(system.config)
            try:
                async with ChatClient(system.address) as client:
                    with JournalView(system.config) as journal:
                        learner = OwnSystem(system.config, engine, journal)
                        return await self._run_once(client, learner, speaker_of, watcher)
            finally:
                await engine.close()

        watcher.show(Snapshot("start", 0, 1))
        config = self.config(home)
        record = await with_system(config, work, lambda: watcher.show(Snapshot("stop", 0, 1)))
        watcher.show(Snapshot("stop", 1, 1))
        return record


@asynccontextmanager
async def _people(voice: Endpoint | None) -> AsyncIterator[PlayedBy | None]:
    """Give the model that plays the people, where there is one."""
    if voice is None:
        yield None
        return
    async with voice.client() as client:
        yield PlayedBy(client, voice.model or "default")
