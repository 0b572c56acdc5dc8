"""How far answers have moved from what the start weights would write."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rejoinder.engine.base import Engine, ScoreRequest
from rejoinder.evaluation.watch import SampledIds
from rejoinder.types import BASE_VERSION, new_id

AT_ONCE = 4


async def start_logprob(engine: Engine, policy: str, answers: Sequence[SampledIds]) -> float:
    """Return the mean log-probability per token of answers under the policy's start weights.

    At temperature 1, in nats, over all tokens of all answers together (end tokens included).

    Raises:
        EngineError: the engine failed, or no longer has the start weights.
        ValueError: there are no answer tokens.
    """
    places = asyncio.Semaphore(AT_ONCE)

    async def score(ids: SampledIds) -> list[float]:
        request = ScoreRequest(
            request_id=new_id(),
            ids=ids.prompt + ids.answer,
            policy=policy,
            version=BASE_VERSION,
            start=len(ids.prompt),
            priority=20,
        )
        async with places:
            return (await engine.score(request)).logprobs

    scored = await asyncio.gather(*(score(ids) for ids in answers if ids.answer))
    logprobs = [value for values in scored for value in values]
    if not logprobs:
        raise ValueError("no answer tokens to score")
    return sum(logprobs) / len(logprobs)
