"""Measuring a policy version on held-out questions, in turns that never train."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rejoinder.evaluation.client import Ask, ChatClient, RequestFailed
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


async def measure(
    client: ChatClient,
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
    places = asyncio.Semaphore(settings.measure_at_once)
    rng = random.Random(seed)  # noqa: S311  (which wish goes with which question)
    asked = [(question, with_wish(question, settings.wishes, rng)) for question in questions]

    async def ask(number: int) -> Exchange | None:
        question, text = asked[number]
        own_seed = seed * 10_000 + number
        how = Ask(
            settings.max_tokens,
            settings.temperature,
            seed=own_seed,
            model=f"{model}@{version}",
            turn_type=TurnType.SIDE,
        )
        async with places:
            try:
                reply = await client.ask(opening(settings, text), how)
            except RequestFailed:
                return None
            finally:
                on_answer()
        return judge_by_rule(question, reply, settings, own_seed)

    found = await asyncio.gather(*(ask(number) for number in range(len(asked))))
    exchanges = tuple(exchange for exchange in found if exchange is not None)
    return Measurement(version, exchanges, failed=len(found) - len(exchanges))
