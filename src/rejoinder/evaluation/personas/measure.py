"""First answers of one policy version to held-out tasks, in turns that never train."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from rejoinder.evaluation.client import Ask, Asker, ChatMessages, Reply, RequestFailed
from rejoinder.evaluation.personas.copying import template_share
from rejoinder.evaluation.personas.persona import Persona
from rejoinder.evaluation.personas.records import HeldOutAnswer, Rates
from rejoinder.evaluation.personas.settings import BenchmarkSettings
from rejoinder.evaluation.questions import Split
from rejoinder.evaluation.statistics import Share
from rejoinder.evaluation.tasks import Task
from rejoinder.types import TurnType


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A persona's held-out tasks in the words in which they are asked, the same every time."""

    persona: Persona
    tasks: tuple[Task, ...]
    words: tuple[str, ...]
    seed: int

    @classmethod
    def draw(cls, persona: Persona, count: int, seed: int) -> HeldOut:
        """Choose tasks and words; the same seed chooses the same for every method."""
        rng = random.Random(seed)  # noqa: S311  (a sample of tasks)
        known = persona.load_tasks(Split.HELDOUT)
        tasks = tuple(rng.sample(known, min(count, len(known))))
        return cls(persona, tasks, tuple(persona.put(task, rng) for task in tasks), seed)


@dataclass(frozen=True)
class Answers:
    """The answers of one version to one persona's tasks; None where a request failed."""

    heldout: HeldOut
    replies: Sequence[Reply | None]

    @classmethod
    def none_yet(cls, heldout: HeldOut) -> Answers:
        """Return that nothing has been answered."""
        return cls(heldout, [None] * len(heldout.tasks))

    @property
    def rates(self) -> Rates:
        """How many of the answers satisfy, and how many are right."""
        read = self.read
        right = [task.is_right(reply.text) for task, reply in self._pairs]
        counts = Counter(fault for one in read for fault in one.faults)
        return Rates(
            passed=Share.count(not one.faults for one in read),
            right=Share.count(one for one in right if one is not None),
            faults=dict(counts.most_common()),
            failed=len(self.replies) - len(read),
            template=template_share([one.text for one in read]),
        )

    @cached_property
    def read(self) -> tuple[HeldOutAnswer, ...]:
        """The answers that came, in the order of the tasks, as the persona reads them."""
        persona = self.heldout.persona
        return tuple(
            HeldOutAnswer(
                persona.name,
                task.text,
                reply.text,
                persona.faults_of(task, reply.text, reply.finish_reason),
            )
            for task, reply in self._pairs
        )

    @property
    def answered(self) -> list[Reply]:
        """The replies that came."""
        return [reply for reply in self.replies if reply is not None]

    @property
    def _pairs(self) -> list[tuple[Task, Reply]]:
        both = zip(self.heldout.tasks, self.replies, strict=True)
        return [(task, reply) for task, reply in both if reply is not None]

    @property
    def complete(self) -> bool:
        """Whether none has failed."""
        return None not in self.replies


async def ask_heldout(
    client: Asker,
    model: str,
    before: Answers,
    settings: BenchmarkSettings,
    on_answer: Callable[[], None] = lambda: None,
) -> Answers:
    """Ask one version the tasks without an answer yet, as side turns with fixed seeds."""
    heldout, replies = before.heldout, list(before.replies)
    missing = [number for number, reply in enumerate(replies) if reply is None]
    asks = [
        (
            [{"role": "user", "content": heldout.words[number]}],
            Ask(
                heldout.persona.max_tokens,
                settings.temperature,
                seed=heldout.seed * 10_000 + number,
                model=model,
                turn_type=TurnType.SIDE,
            ),
        )
        for number in missing
    ]
    found = await _ask_all(client, asks, settings.measure_at_once, on_answer)
    for number, reply in zip(missing, found, strict=True):
        replies[number] = reply
    return Answers(heldout, replies)


async def _ask_all(
    client: Asker,
    asks: Sequence[tuple[ChatMessages, Ask]],
    at_once: int,
    on_answer: Callable[[], None],
) -> list[Reply | None]:
    """Send requests, ``at_once`` at a time; returns the replies in order, None where one failed."""
    places = asyncio.Semaphore(at_once)

    async def ask(messages: ChatMessages, how: Ask) -> Reply | None:
        async with places:
            try:
                return await client.ask(messages, how)
            except RequestFailed:  # the client counts it
                return None
            finally:
                on_answer()

    return await asyncio.gather(*(ask(messages, how) for messages, how in asks))
