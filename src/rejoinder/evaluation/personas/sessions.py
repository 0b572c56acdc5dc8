"""Sessions of simulated people: a task, answers, reactions in words, until content or out of turns.

Nothing tells the system which persona speaks; it has only the words.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rejoinder.errors import RejoinderError
from rejoinder.evaluation.client import Ask, Asker, Reply, RequestFailed
from rejoinder.evaluation.personas.learner import PATIENCE_S
from rejoinder.evaluation.personas.persona import Persona
from rejoinder.evaluation.personas.records import SessionRecord
from rejoinder.evaluation.personas.settings import BenchmarkSettings
from rejoinder.evaluation.personas.speakers import SpeakerOf
from rejoinder.evaluation.questions import Split
from rejoinder.evaluation.tasks import Task
from rejoinder.types import new_id

PAUSE_AFTER_FAILURE_S = 1.0
FAREWELL_TOKENS = 8
"""The last message of a session only carries the reaction; nobody waits for its answer."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One answer of a session, first or later, and what is wrong with it."""

    completion_id: str
    faults: tuple[str, ...]


@dataclass(slots=True)
class _Session:
    """A session as it goes."""

    number: int
    persona: Persona
    task: Task
    messages: list[dict[str, str]]
    seed: int
    first_answer: str = ""
    version: int | None = None
    attempts: list[Attempt] = field(default_factory=list)

    def record(self) -> SessionRecord:
        return SessionRecord(
            number=self.number,
            persona=self.persona.name,
            task=self.task.text,
            first_answer=self.first_answer,
            version=self.version,
            faults=self.attempts[0].faults,
            right=self.task.is_right(self.first_answer),
            answers=len(self.attempts),
            content=not self.attempts[-1].faults,
        )


class Population:
    """People who talk at the same time, session after session, until told to stop or all done.

    Which persona comes with which task, in which words, follows from the seed and the number of
    the session alone; in a joint run every persona comes equally often.
    """

    def __init__(
        self,
        client: Asker,
        personas: Sequence[Persona],
        speaker_of: SpeakerOf,
        settings: BenchmarkSettings,
        seed: int,
        ready: Callable[[], Awaitable[None]],
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Get ready to talk.

        Args:
            client: of the gateway.
            personas: who come.
            speaker_of: who puts their opinions into words.
            settings: how many sessions, how many at a time.
            seed: of personas, tasks and words.
            ready: awaited before each answer: it holds people back while learning lags.
            patience_s: how long requests may fail, all of them, until nobody goes on.
        """
        self.attempts: list[Attempt] = []
        """All answers, in the order in which they came."""
        self.lost = 0
        """Times that a session ended before a first answer, because a request failed."""
        self.begun = 0
        self.asking = 0
        """Requests that are being answered."""
        self.reactions = 0
        """That have arrived."""
        self._lost: deque[_Session] = deque()
        """Sessions to begin again: an outage must not shorten the run."""
        self._patience_s = patience_s
        self._failing_since: float | None = None
        self._records: list[SessionRecord] = []
        self._client = client
        self._speaker_of = speaker_of
        self._settings = settings
        self._ready = ready
        self._run = new_id()  # sessions of another run at the same gateway have other names
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311  (who comes next, with what)
        self._personas = _endless(personas, self._random)
        self._tasks = {
            persona.name: _endless(persona.load_tasks(Split.TRAINING), self._random)
            for persona in personas
        }
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether everybody has been told to end."""
        return self._stopped

    @property
    def records(self) -> list[SessionRecord]:
        """The sessions that have ended, in the order in which they began."""
        return sorted(self._records, key=lambda record: record.number)

    def stop(self) -> None:
        """Let everybody end after the answer they wait for, with their reaction to it."""
        self._stopped = True

    async def talk(self) -> None:
        """Run all people until the last session; failed requests are the client's to count.

        Raises:
            RejoinderError: nothing was answered for too long.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._settings.people):
                    group.create_task(self._live())
        except* RejoinderError as errors:
            raise RejoinderError(str(errors.exceptions[0])) from errors

    async def _live(self) -> None:
        while True:
            await self._ready()
            session = None if self._stopped else self._next()
            if session is None:
                return
            try:
                await self._hold(session)
            except RequestFailed as failure:
                if session.attempts:
                    self._records.append(session.record())
                else:
                    self.lost += 1
                    self._lost.append(session)
                self._bear(failure)
                await asyncio.sleep(PAUSE_AFTER_FAILURE_S)
            else:
                self._records.append(session.record())

    def _bear(self, failure: RequestFailed) -> None:
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= self._patience_s:
            raise RejoinderError(f"no request was answered for {self._patience_s:g} s: {failure}")

    async def _ask(self, session: _Session, ask: Ask) -> Reply:
        self.asking += 1
        try:
            reply = await self._client.ask(session.messages, ask)
        finally:
            self.asking -= 1
        self._failing_since = None
        self.reactions += bool(session.attempts)
        return reply

    def _next(self) -> _Session | None:
        if self._lost:
            return self._lost.popleft()
        return self._begin() if self.begun < self._settings.sessions else None

    def _begin(self) -> _Session:
        self.begun += 1
        persona = next(self._personas)
        task = next(self._tasks[persona.name])
        words = persona.put(task, self._random)
        opening = [{"role": "user", "content": words}]
        return _Session(
            self.begun, persona, task, opening, seed=self._seed * 1_000_000 + self.begun
        )

    async def _hold(self, session: _Session) -> None:
        speaker = self._speaker_of(session.persona, session.seed)
        name = f"{self._run}-{session.number}"
        temperature = self._settings.temperature
        for left in reversed(range(self._settings.answers or session.persona.turns)):
            reply = await self._ask(
                session, Ask(session.persona.max_tokens, temperature, session=name)
            )
            if not session.attempts:
                session.first_answer, session.version = reply.text, reply.version
            faults = session.persona.faults_of(session.task, reply.text, reply.finish_reason)
            attempt = Attempt(reply.completion_id, faults)
            session.attempts.append(attempt)
            self.attempts.append(attempt)
            last = not faults or not left or self._stopped
            said = await speaker.react(session.task, reply.text, faults, last=last)
            session.messages += [
                {"role": "assistant", "content": reply.text},
                {"role": "user", "content": said},
            ]
            if last:
                break
            await self._ready()
            if self._stopped:
                break
        # The last reaction still has to arrive.
        await self._ask(session, Ask(FAREWELL_TOKENS, temperature, session=name, done=True))


def settled(records: Sequence[SessionRecord]) -> list[SessionRecord]:
    """Return those up to the first session that goes on: none will come in between.

    Args:
        records: of sessions that have ended, by their numbers.
    """
    return [one for place, one in enumerate(records, 1) if one.number == place]


def _endless(items: Sequence[_T], rng: random.Random) -> Iterator[_T]:
    """Yield all items in a new order, again and again."""
    return itertools.chain.from_iterable(
        rng.sample(items, len(items)) for _ in itertools.repeat(None)
    )
