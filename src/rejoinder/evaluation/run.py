"""One run of the demonstration: the real system, real conversations, and what they taught.

A scripted person asks everyday questions over many sessions and says in words what it thinks of
each answer. The system judges those words with a built-in judge, trains, and serves the improved
model at once. Held-out questions are measured before and after, in turns that never train.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rejoinder.config import Config
from rejoinder.engine.base import Engine
from rejoinder.engine.connect import connect_engine
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.client import ChatClient
from rejoinder.evaluation.drift import start_logprob
from rejoinder.evaluation.measure import Measurement, heldout_questions, measure
from rejoinder.evaluation.progress import Snapshot, Watcher
from rejoinder.evaluation.questions import Split, load_questions
from rejoinder.evaluation.sessions import Crowd
from rejoinder.evaluation.settings import DemoSettings
from rejoinder.evaluation.statistics import Share
from rejoinder.evaluation.system import with_system
from rejoinder.evaluation.watch import JournalView, Judged, Progress
from rejoinder.launch.system import LocalSystem
from rejoinder.types import BASE_VERSION

POLL_S = 1.0
TAKE_UP_S = 60.0
"""How long the engine may need to serve the newest version after its step was committed."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What one run of the demonstration found."""

    seed: int
    before: Measurement
    after: Measurement
    between: tuple[Measurement, ...]
    """Held-out measurements of versions in between, where they were asked for."""
    training: tuple[tuple[int, Share], ...]
    """Satisfaction of the training answers of each version."""
    updates: int
    samples: int
    """That trained."""
    agreement: Share
    no_verdicts: int
    start_logprob_before: float
    """Mean log-probability per token of the old answers under the start weights."""
    start_logprob_after: float
    requests: int
    failures: tuple[str, ...]
    seconds: float
    """All of it: start, both measurements, learning."""
    learning_seconds: float


NEWEST = 48
"""Training answers in the running share of satisfying ones."""


async def run_once(
    base: Config, settings: DemoSettings, seed: int, home: Path, watcher: Watcher
) -> DemoResult:
    """Run the demonstration once.

    Args:
        base: gives model, device and engine; the demonstration sets the rest.
        settings: of the run.
        seed: of questions, people, sampling of the measurements, and training.
        home: an empty or missing directory for the system's data.
        watcher: shown how it goes.

    Raises:
        RejoinderError: the home is in use already, a role cannot start, or keeps ending.
    """
    if (home / "journal.db").exists():
        raise RejoinderError(f"{home} has data of an earlier run: give the demonstration another")
    started = time.monotonic()
    config = settings.config(base, home, seed)
    watcher.show(Snapshot("start", 0, 1))

    async def work(system: LocalSystem) -> DemoResult:
        engine = connect_engine(system.config)
        try:
            async with ChatClient(system.address) as client:
                with JournalView(system.config) as journal:
                    run = _Run(settings, seed, system.config, client, engine, journal, watcher)
                    return await run.whole()
        finally:
            await engine.close()

    result = await with_system(config, lambda _: None, work)
    return replace(result, seconds=time.monotonic() - started)


class _Run:
    """The phases of one run, over the parts they share."""

    def __init__(
        self,
        settings: DemoSettings,
        seed: int,
        config: Config,
        client: ChatClient,
        engine: Engine,
        journal: JournalView,
        watcher: Watcher,
    ) -> None:
        self._settings = settings
        self._seed = seed
        self._config = config
        self._client = client
        self._engine = engine
        self._journal = journal
        self._watcher = watcher
        self._questions = heldout_questions(settings.heldout, seed)
        self._progress = Progress(0, 0, 0)
        self._crowd = Crowd(
            client, load_questions(Split.TRAINING), settings, seed, self._until_wanted
        )

    async def whole(self) -> DemoResult:
        before = await self._measure("before", BASE_VERSION)
        learning_started = time.monotonic()
        await self._learn()
        learning_seconds = time.monotonic() - learning_started
        last = await self._newest_served()
        after = await self._measure("after", last)
        every = self._settings.curve_every
        between = [
            await self._measure("curve", version)
            for version in (range(every, last, every) if every else ())
        ]
        judged = self._journal.judged()
        return DemoResult(
            seed=self._seed,
            before=before,
            after=after,
            between=tuple(between),
            training=self._training_curve(judged),
            updates=last,
            samples=self._journal.progress().trained,
            agreement=self._agreement(judged),
            no_verdicts=sum(turn.score is None for turn in judged.values()),
            start_logprob_before=await self._start_logprob(before),
            start_logprob_after=await self._start_logprob(after),
            requests=self._client.requests,
            failures=tuple(self._client.failures),
            seconds=0.0,
            learning_seconds=learning_seconds,
        )

    async def _measure(self, phase: str, version: int) -> Measurement:
        done = 0

        def count() -> None:
            nonlocal done
            done += 1
            self._watcher.show(Snapshot(phase, done, len(self._questions)))

        self._watcher.show(Snapshot(phase, 0, len(self._questions)))
        policy = self._config.model.policy
        # Loaded on purpose, it stays while newer ones go live.
        await self._engine.load(self._journal.source(version), live=False)
        found = await measure(
            self._client, policy, version, self._questions, self._settings, self._seed, count
        )
        await self._engine.unload(policy, version)
        return found

    async def _learn(self) -> None:
        """Let people talk until there are enough updates, or the time is over."""
        deadline = time.monotonic() + self._settings.learning_s
        talking = asyncio.create_task(self._crowd.talk())
        try:
            while self._progress.version < self._settings.updates:
                if talking.done() or time.monotonic() > deadline:
                    break
                self._progress = self._journal.progress()
                self._watcher.show(self._snapshot())
                await asyncio.sleep(POLL_S)
            self._crowd.stop()
            await talking
        finally:
            talking.cancel()

    async def _until_wanted(self) -> None:
        """Hold people back while a full batch waits, so that answers come from new weights.

        A stopped crowd is let through: it ends by itself.
        """
        settings = self._settings
        while not self._crowd.stopped:
            now = self._progress
            left = settings.updates * settings.batch_size - now.trained
            if now.ready < min(settings.batch_size, left):
                return
            await asyncio.sleep(POLL_S)

    async def _newest_served(self) -> int:
        """Return the newest version once the engine serves it."""
        newest = self._journal.progress().version
        deadline = time.monotonic() + TAKE_UP_S
        while time.monotonic() < deadline:
            models = await self._client.get("/v1/models")
            if models["data"][0]["version"] == newest:
                break
            await asyncio.sleep(POLL_S)
        return newest

    def _snapshot(self) -> Snapshot:
        newest = self._crowd.exchanges[-NEWEST:]
        return Snapshot(
            "learning",
            self._progress.version,
            self._settings.updates,
            samples=self._progress.trained + self._progress.ready,
            satisfied=Share.count(exchange.assessment.passes for exchange in newest),
            agreement=self._agreement(self._journal.judged()),
        )

    def _agreement(self, judged: dict[str, Judged]) -> Share:
        """Compare verdicts with the person's true opinion, where there is a verdict."""
        return Share.count(
            (turn.score > 0) == exchange.assessment.passes
            for exchange in self._crowd.exchanges
            if (turn := judged.get(exchange.reply.completion_id)) and turn.score is not None
        )

    def _training_curve(self, judged: dict[str, Judged]) -> tuple[tuple[int, Share], ...]:
        by_version: dict[int, list[bool]] = {}
        for exchange in self._crowd.exchanges:
            turn = judged.get(exchange.reply.completion_id)
            if turn is not None and turn.version is not None:
                by_version.setdefault(turn.version, []).append(exchange.assessment.passes)
        return tuple((version, Share.count(by_version[version])) for version in sorted(by_version))

    async def _start_logprob(self, measurement: Measurement) -> float:
        return await start_logprob(
            self._engine,
            self._config.model.policy,
            [
                self._journal.sampled_ids(exchange.reply.completion_id)
                for exchange in measurement.exchanges
            ],
        )
