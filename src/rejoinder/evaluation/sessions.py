"""People in conversation with the gateway: they ask, read, react in words, and go on or leave."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from rejoinder.evaluation.client import Ask, ChatClient, Reply, RequestFailed
from rejoinder.evaluation.person import Person, load_voice
from rejoinder.evaluation.questions import Question
from rejoinder.evaluation.rules import Assessment, assess
from rejoinder.evaluation.settings import DemoSettings

PAUSE_AFTER_FAILURE_S = 1.0
FAREWELL_TOKENS = 8
"""The last message of a session only carries the reaction; nobody waits for its answer."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question, its answer, and what the person truly thought of it."""

    question: Question
    reply: Reply
    assessment: Assessment
    seed: int | None = None


class Crowd:
    """Several people who talk at the same time, session after session, until told to stop."""

    def __init__(
        self,
        client: ChatClient,
        questions: Sequence[Question],
        settings: DemoSettings,
        seed: int,
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        """``ready`` is awaited before each question: it holds people back while learning lags."""
        self.exchanges: list[Exchange] = []
        self._client = client
        self._settings = settings
        self._seed = seed
        self._ready = ready
        self._random = random.Random(seed)  # noqa: S311  (which question comes next)
        self._questions = _endless(questions, self._random)
        self._numbers = itertools.count(1)
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether everybody has been told to end."""
        return self._stopped

    def stop(self) -> None:
        """Let everybody end after the answer they wait for, with their reaction to it."""
        self._stopped = True

    async def talk(self) -> None:
        """Run all people until ``stop``; failed requests are the client's to count."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._settings.people):
                voice = load_voice(self._settings.voice)
                person = Person(voice, seed=self._seed * 1000 + number)
                group.create_task(self._live(person))

    async def _live(self, person: Person) -> None:
        shares = self._settings.questions_per_session
        while not self._stopped:
            count = self._random.choices(range(1, len(shares) + 1), shares)[0]
            try:
                await self._hold_session(person, count)
            except RequestFailed:
                await asyncio.sleep(PAUSE_AFTER_FAILURE_S)  # counted; then something else

    async def _hold_session(self, person: Person, count: int) -> None:
        session = f"demo-{self._seed}-{next(self._numbers)}"
        question = next(self._questions)
        messages = opening(self._settings, with_wish(question, self._settings.wishes, self._random))
        first = len(messages)
        for left in reversed(range(count)):
            await self._ready()
            if self._stopped:
                break
            reply = await self._client.ask(messages, self._ask(session))
            exchange = judge_by_rule(question, reply, self._settings)
            self.exchanges.append(exchange)
            said = person.react(question, exchange.assessment.flaws)
            if left and not self._stopped:
                question = next(self._questions)  # the wish was said once and still stands
                said = person.ask_next(said, question.text)
            else:
                said = person.say_goodbye(said, question)
            messages.append({"role": "assistant", "content": reply.text})
            messages.append({"role": "user", "content": said})
        if len(messages) > first:  # the last reaction still has to arrive
            await self._client.ask(messages, self._farewell(session))

    def _ask(self, session: str) -> Ask:
        return Ask(self._settings.max_tokens, self._settings.temperature, session=session)

    def _farewell(self, session: str) -> Ask:
        return Ask(
            FAREWELL_TOKENS,
            self._settings.temperature,
            session=session,
            done=True,
        )


def judge_by_rule(
    question: Question, reply: Reply, settings: DemoSettings, seed: int | None = None
) -> Exchange:
    """Return an exchange with what the person truly thinks of the answer."""
    assessment = assess(question.text, reply.text, reply.finish_reason, settings.limits)
    return Exchange(question, reply, assessment, seed)


def opening(settings: DemoSettings, text: str) -> list[dict[str, str]]:
    """Return the messages of a conversation's first request."""
    system = [{"role": "system", "content": settings.system}] if settings.system else []
    return [*system, {"role": "user", "content": text}]


def with_wish(question: Question, wishes: Sequence[str], rng: random.Random) -> str:
    """Return the words in which a question is put."""
    return f"{question.text} {rng.choice(wishes)}" if wishes else question.text


def _endless(questions: Sequence[Question], rng: random.Random) -> Iterator[Question]:
    while True:
        yield from rng.sample(questions, len(questions))
