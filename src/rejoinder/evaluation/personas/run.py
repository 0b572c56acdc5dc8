"""One run of the benchmark: people talk, the system learns, its versions are measured as they come.

Everybody waits while a version is measured, so that the answers in between come from it or from the
next one, and so that no version has to be kept for later.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rejoinder.errors import RejoinderError
from rejoinder.evaluation.client import Asker
from rejoinder.evaluation.personas.learner import Learner
from rejoinder.evaluation.personas.measure import Answers, HeldOut, ask_heldout
from rejoinder.evaluation.personas.outcomes import confirmed_rate, sessions_to_converge
from rejoinder.evaluation.personas.persona import Persona
from rejoinder.evaluation.personas.records import Ended, HeldOutAnswer, Measurement, RunRecord
from rejoinder.evaluation.personas.sessions import Population, settled
from rejoinder.evaluation.personas.settings import BenchmarkSettings
from rejoinder.evaluation.personas.speakers import SpeakerOf
from rejoinder.evaluation.progress import Snapshot, Watcher
from rejoinder.evaluation.statistics import Share
from rejoinder.evaluation.watch import Progress
from rejoinder.types import Json

POLL_S = 1.0
SHOW_EVERY_S = 1.0
SPARE = 8
"""For so many samples of an update, one answer more is asked for: not all give a sample."""
NEWEST = 48
"""Answers in the running share of satisfying ones."""
TAKE_UP_S = 60.0
"""How long people wait for an engine to take a version up; it may be unable to."""
SHOWN_FAILURES = 5
MEASURE_TRIES = 4
PAUSE_POLLS = 10
"""Pause before a measurement is tried again, in polls; it doubles, so that a role can restart."""
DRIFT_ANSWERS = 32
"""Answers of a measurement, evenly chosen, that are scored under the start weights: on a CPU that
takes about half as long as giving them."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Which run it is."""

    method: str
    personas: tuple[Persona, ...]
    seed: int
    """Of people, tasks, words and the sampling of held-out answers."""
    settings: BenchmarkSettings
    described: Json = field(default_factory=dict)
    """Everything that decides how it goes, kept with the result."""


async def run_once(
    spec: RunSpec,
    client: Asker,
    learner: Learner,
    speaker_of: SpeakerOf,
    watcher: Watcher,
    poll_s: float = POLL_S,
    on_measured: Callable[[RunRecord], None] = lambda _: None,
) -> RunRecord:
    """Run once and return what was found.

    Args:
        spec: which run.
        client: of the gateway.
        learner: what learns behind it.
        speaker_of: who puts opinions into words.
        watcher: is shown how it goes.
        poll_s: how often learning is looked at.
        on_measured: gets the record so far after each measurement.

    Raises:
        RejoinderError: what it needs was away for longer than it waits.
    """
    return await _Run(spec, client, learner, speaker_of, watcher, poll_s, on_measured).whole()


class _Run:
    """The phases of one run, over the parts they share."""

    def __init__(
        self,
        spec: RunSpec,
        client: Asker,
        learner: Learner,
        speaker_of: SpeakerOf,
        watcher: Watcher,
        poll_s: float,
        on_measured: Callable[[RunRecord], None],
    ) -> None:
        self._spec = spec
        self._settings = spec.settings
        self._client = client
        self._learner = learner
        self._watcher = watcher
        self._poll_s = poll_s
        self._on_measured = on_measured
        self._started = self._learning_since = time.monotonic()
        self._progress = Progress(0, 0, 0)
        self._reactions_known = 0
        self._behind_since: float | None = None
        """Since when the engine answers with an older version than the newest."""
        self._door = asyncio.Lock()
        self._first = 0
        self._measuring = False
        self._measurements: list[Measurement] = []
        self._answers_before: tuple[HeldOutAnswer, ...] = ()
        self._answers_after: tuple[HeldOutAnswer, ...] = ()
        self._heldout = [
            HeldOut.draw(persona, spec.settings.heldout, spec.seed) for persona in spec.personas
        ]
        self._population = Population(
            client, spec.personas, speaker_of, spec.settings, spec.seed, self._until_wanted
        )

    async def whole(self) -> RunRecord:
        self._progress = await self._learner.progress()
        self._first = self._progress.version
        await self._measure()
        if not self._measurements[0].complete:
            raise RejoinderError(f"the start could not be measured: {self._client.failures[-1]}")
        ended = await self._learn()
        newest = max(one.version for one in self._measurements if one.complete)
        if self._progress.version > newest and ended is not Ended.CONVERGED:
            await self._measure()
        return await self._record(ended)

    async def _record(self, ended: Ended) -> RunRecord:
        judged = await self._learner.judged()
        population, client = self._population, self._client
        return RunRecord(
            method=self._spec.method,
            personas=tuple(persona.name for persona in self._spec.personas),
            seed=self._spec.seed,
            settings=self._spec.described,
            ended=ended,
            updates=self._updates,
            samples=self._progress.trained,
            seconds=round(self._seconds, 1),
            sessions=tuple(population.records),
            measurements=tuple(self._measurements),
            agreement=self._agreement(judged),
            no_verdicts=sum(score is None for score in judged.values()),
            lost_sessions=population.lost,
            requests=client.requests,
            failed_requests=len(client.failures),
            failures=tuple(client.failures[:SHOWN_FAILURES]),
            answers_before=self._answers_before,
            answers_after=self._answers_after,
            rollbacks=self._progress.rollbacks,
        )

    async def _learn(self) -> Ended:
        """Let people talk until a limit is reached, and measure versions as they come."""
        self._learning_since = time.monotonic()
        shown = -math.inf
        talking = asyncio.create_task(self._population.talk())
        try:
            while (ended := self._ended(talking)) is None:
                await self._look()
                due = self._measurements[-1].version + self._settings.measure_every
                if self._progress.version >= due:
                    await self._measure()
                if time.monotonic() >= shown + SHOW_EVERY_S:  # it counts all answers there are
                    self._watcher.show(await self._snapshot())
                    shown = time.monotonic()
                await asyncio.sleep(self._poll_s)
            self._population.stop()
            await talking
            self._progress = await self._learner.progress()
            return ended
        finally:
            talking.cancel()

    def _ended(self, talking: asyncio.Task[None]) -> Ended | None:
        if talking.done():
            talking.result()  # raises what went wrong
            return Ended.SESSIONS
        if self._settings.until_converged and self._have_converged:
            return Ended.CONVERGED
        if self._updates >= self._settings.updates:
            return Ended.UPDATES
        learning = time.monotonic() - self._learning_since
        return Ended.TIME if learning > 60 * self._settings.minutes else None

    @property
    def _have_converged(self) -> bool:
        measured = [one for one in self._measurements if one.complete]
        names = [persona.name for persona in self._spec.personas]
        if not all(confirmed_rate(measured, name) for name in names):
            return False  # as most of the time: this is asked at every poll
        sessions = settled(self._population.records)  # one that ends later must not break a streak
        return all(sessions_to_converge(sessions, measured, name).happened for name in names)

    async def _until_wanted(self) -> None:
        """Hold people back, in the order in which they come, while nothing they say is wanted.

        A stopped population is let through: it ends by itself.
        """
        async with self._door:  # one after the other: who has got through asks, and counts at once
            while not self._population.stopped:
                if not self._is_enough:
                    return
                await asyncio.sleep(self._poll_s)

    @property
    def _is_enough(self) -> bool:
        """Whether nothing people say now is wanted.

        A version is measured or taken up, a full batch waits or comes, or all updates are made. So
        answers come from the newest weights, and are not many more than an update takes.
        """
        if self._measuring or self._updates >= self._settings.updates:
            return True
        behind = self._behind_since
        if behind is not None and time.monotonic() - behind < TAKE_UP_S:
            return True
        batch = self._learner.batch_size
        if batch is None:
            return False
        ready, judging = self._progress.ready, self._progress.judging
        unknown = self._population.reactions - self._reactions_known
        coming = ready + judging + unknown + self._population.asking
        return ready >= batch or coming >= batch + batch // SPARE

    async def _look(self) -> None:
        """See where learning stands; what arrives meanwhile may count twice until the next look."""
        arrived = self._population.reactions
        self._progress = await self._learner.progress()
        self._reactions_known = arrived
        served = self._progress.served
        if served is None or served >= self._progress.version:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = time.monotonic()

    async def _measure(self) -> None:
        """Ask the newest version everything that is held out."""
        version = self._progress.version
        self._measuring = True
        try:
            answers = await self._ask_heldout(version)
            divergence = await self._divergence(answers)
        finally:
            self._measuring = False
        measurement = self._measurement(version, answers, divergence)
        # A version whose measurement has failed may be measured again at the end.
        earlier = [one for one in self._measurements if one.version != version]
        self._measurements = [*earlier, measurement]
        if measurement.complete:
            self._answers_after = tuple(one for each in answers for one in each.read)
            self._answers_before = self._answers_before or self._answers_after
        self._on_measured(await self._record(Ended.CUT))

    async def _ask_heldout(self, version: int) -> list[Answers]:
        """Ask all, and what failed again; the engine may have lost the version meanwhile."""
        answers = [Answers.none_yet(heldout) for heldout in self._heldout]
        total = sum(len(heldout.tasks) for heldout in self._heldout)
        done = 0

        def count() -> None:
            nonlocal done
            done += 1
            self._watcher.show(Snapshot("heldout", done, total))

        for attempt in range(MEASURE_TRIES):
            if attempt:
                await asyncio.sleep(PAUSE_POLLS * self._poll_s * 2 ** (attempt - 1))
            done = sum(len(each.answered) for each in answers)
            self._watcher.show(Snapshot("heldout", done, total))
            async with self._learner.serving(version) as model:
                answers = [
                    await ask_heldout(self._client, model, each, self._settings, count)
                    for each in answers
                ]
            if all(each.complete for each in answers):
                break
        return answers

    def _measurement(
        self, version: int, answers: Sequence[Answers], divergence: float | None
    ) -> Measurement:
        versions = {reply.version for each in answers for reply in each.answered}
        return Measurement(
            version=version,
            served_by=tuple(sorted(one for one in versions if one is not None)),
            sessions=self._population.begun,
            seconds=round(self._seconds, 1),
            personas={each.heldout.persona.name: each.rates for each in answers},
            divergence=None if divergence is None else round(divergence, 5),
        )

    async def _divergence(self, answers: Sequence[Answers]) -> float | None:
        completions = [reply.completion_id for each in answers for reply in each.answered]
        some = completions[:: math.ceil(len(completions) / DRIFT_ANSWERS) or 1]
        return await self._learner.divergence(some, self._settings.temperature)

    async def _snapshot(self) -> Snapshot:
        newest = self._population.attempts[-NEWEST:]
        return Snapshot(
            "learning",
            self._updates,
            self._settings.updates,
            samples=self._progress.trained + self._progress.ready,
            satisfied=Share.count(not attempt.faults for attempt in newest),
            agreement=self._agreement(await self._learner.judged()),
        )

    def _agreement(self, judged: dict[str, int | None]) -> Share:
        """Compare verdicts with the rule, where there is a verdict: measured, never used."""
        return Share.count(
            (score > 0) == (not attempt.faults)
            for attempt in self._population.attempts
            if (score := judged.get(attempt.completion_id)) is not None
        )

    @property
    def _updates(self) -> int:
        return self._progress.version - self._first

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started
