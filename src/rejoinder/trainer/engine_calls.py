"""An engine as the trainer calls it, which knows no event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from rejoinder.engine.base import Engine, EngineInfo, ScoreRequest, ScoreResult
from rejoinder.errors import (
    EngineBusy,
    EngineError,
    EngineTimeout,
    EngineUnavailable,
    UnknownVersion,
)

AWAY = (EngineUnavailable, EngineBusy, EngineTimeout, UnknownVersion)
"""What may be over when the step is taken again."""
_AT_ONCE = 4
"""Requests at one time: more would not be faster, and judges ask the same engine."""

_T = TypeVar("_T")


class EngineCaller:
    """Calls an engine from code that is not asynchronous, all on one event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._runner = asyncio.Runner()

    def info(self) -> EngineInfo:
        """See ``Engine.info``."""
        return self._run(self._engine.info())

    def score_all(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult | EngineError]:
        """Score several requests at once; an error stands in the place of a result.

        Once the engine is away no more are sent: each would wait for its whole deadline.
        """
        return self._run(self._score_all(requests))

    def close(self) -> None:
        """Close the engine's connection too."""
        self._run(self._engine.close())
        self._runner.close()

    def _run(self, call: Coroutine[Any, Any, _T]) -> _T:
        return self._runner.run(call)

    async def _score_all(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult | EngineError]:
        places = asyncio.Semaphore(_AT_ONCE)
        away: list[EngineError] = []

        async def score(request: ScoreRequest) -> ScoreResult | EngineError:
            async with places:
                if away:
                    return away[0]
                try:
                    return await self._engine.score(request)
                except EngineError as error:
                    if isinstance(error, AWAY):
                        away.append(error)
                    return error

        return await asyncio.gather(*map(score, requests))
