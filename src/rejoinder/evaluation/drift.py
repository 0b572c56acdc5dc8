"""How far answers have moved from what the start weights would write."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rejoinder.engine.base import Engine, ScoreRequest
from rejoinder.evaluation.watch import SampledIds
from rejoinder.types import BASE_VERSION, new_id

AT_ONCE = 4


async def start_divergence(
    engine: Engine, policy: str, answers: Sequence[SampledIds], temperature: float
) -> float:
    """Return an estimate of the KL divergence per token from the start weights, in nats.

    The mean of l - l_start over the sampled tokens, both at the temperature they were sampled
    with: unbiased (k1 of Schulman, "Approximating KL divergence", 2020), and for few answers
    possibly below zero.

    Raises:
        EngineError: the engine failed, or no longer has the start weights.
        ValueError: there are no answer tokens.
    """
    scored = await _start_logprobs(engine, policy, answers, temperature)
    return _mean(
        [
            own - start
            for ids, starts in zip(answers, scored, strict=True)
            for own, start in zip(ids.logprobs, starts, strict=True)
        ]
    )


async def _start_logprobs(
    engine: Engine, policy: str, answers: Sequence[SampledIds], temperature: float
) -> list[list[float]]:
    places = asyncio.Semaphore(AT_ONCE)

    async def score(ids: SampledIds) -> list[float]:
        if not ids.answer:
            return []
        request = ScoreRequest(
            request_id=new_id(),
            ids=ids.prompt + ids.answer,
            policy=policy,
            version=BASE_VERSION,
            start=len(ids.prompt),
            temperature=temperature,
            priority=20,
        )
        async with places:
            return (await engine.score(request)).logprobs

    return await asyncio.gather(*(score(ids) for ids in answers))


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise ValueError("no answer tokens to score")
    return sum(values) / len(values)
