"""Measuring a policy version on held-out questions, in turns that never train."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rejoinder.evaluation.client import Ask, Asker, ChatMessages, Reply, RequestFailed
from rejoinder.evaluation.questions import Question, Split, load_questions
from rejoinder.evaluation.sessions import Exchange, judge_by_rule, opening, with_wish
from rejoinder.evaluation.settings import DemoSettings
from rejoinder.evaluation.statistics import Share
from rejoinder.types import TurnType


@dataclass(frozen=True, slots=True)
class Measurement:
    """The answers of one version to the held-out questions, in their order."""

    version: int
    exchanges: tuple[Exchange, ...]
    failed: int = 0
    """Questions without an answer: nobody was satisfied."""

    @property
    def satisfied(self) -> Share:
        """How many answers satisfy."""
        hits = sum(exchange.assessment.passes for exchange in self.exchanges)
        return Share(hits, len(self.exchanges) + self.failed)

    @property
    def flaws(self) -> dict[str, int]:
        """How often each flaw occurred, the most frequent first."""
        counts = Counter(
            str(flaw) for exchange in self.exchanges for flaw in exchange.assessment.flaws
        )
        return dict(counts.most_common())


def heldout_questions(count: int, seed: int) -> list[Question]:
    """Return ``count`` held-out questions, the same ones for the same seed."""
    questions = load_questions(Split.HELDOUT)
    rng = random.Random(seed)  # noqa: S311  (a sample of questions)
    return rng.sample(questions, min(count, len(questions)))


async def ask_all(
    client: Asker,
    asks: Sequence[tuple[ChatMessages, Ask]],
    at_once: int,
    on_answer: Callable[[], None] = lambda: None,
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


async def measure(
    client: Asker,
    model: str,
    version: int,
    questions: Sequence[Question],
    settings: DemoSettings,
    seed: int,
    on_answer: Callable[[], None] = lambda: None,
) -> Measurement:
    """Ask one version all questions, as side turns with fixed seeds and wishes.

    A request that fails satisfies nobody; the client counts it.
    """
    rng = random.Random(seed)  # noqa: S311  (which wish goes with which question)
    texts = [with_wish(question, settings.wishes, rng) for question in questions]
    seeds = [heldout_seed(seed, number) for number in range(len(questions))]
    asks = [
        (
            opening(settings, text),
            Ask(
                settings.max_tokens,
                settings.temperature,
                seed=own_seed,
                model=f"{model}@{version}",
                turn_type=TurnType.SIDE,
            ),
        )
        for text, own_seed in zip(texts, seeds, strict=True)
    ]
    replies = await ask_all(client, asks, settings.measure_at_once, on_answer)
    exchanges = tuple(
        judge_by_rule(question, reply, settings, own_seed)
        for question, reply, own_seed in zip(questions, replies, seeds, strict=True)
        if reply is not None
    )
    return Measurement(version, exchanges, failed=len(replies) - len(exchanges))


def heldout_seed(seed: int, number: int) -> int:
    """Return the sampling seed of a held-out request, the same for every version."""
    return seed * 10_000 + number
