"""Answers that leave when they are complete: nothing stands between the engine and their record.

The request's own task asks the engine, so an answer costs no other one. What breaks it off from
elsewhere (its client has gone, its time is over) cancels that task and says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from rejoinder.engine.base import TokenChunk
from rejoinder.gateway.generation import Call, Generation

Take = Callable[[int, TokenChunk], bool]
"""Takes a chunk of a choice; False ends that answer, whatever else the engine would sample."""


class WholeGeneration(Generation):
    """See ``Generation``."""

    def __init__(self, call: Call, take: Take) -> None:
        """``take`` gets each chunk as it comes."""
        super().__init__(call)
        self._take = take
        self._task: asyncio.Task[Any] | None = None
        """Who is waiting in ``sample``."""

    async def sample(self) -> None:
        """Return when all answers have ended.

        Raises:
            EngineError: an answer failed or the time is over.
            ClientGone: nobody listens any more.
        """
        task = self._task = asyncio.current_task()
        assert task is not None, "not in a task"
        if self._failure is not None:
            raise self._failure
        others = task.cancelling()
        try:
            if len(self._call.requests) == 1:
                await self._answer(0, self._call.requests[0])
            else:
                await self._side_by_side()
        except asyncio.CancelledError:
            if self._failure is None or task.uncancel() > others:
                raise
            raise self._failure from None
        finally:
            self._task = None

    async def _pass_on(self, choice: int, stream: AsyncGenerator[TokenChunk, None]) -> bool:
        """See ``Generation``."""
        finished = False
        async for chunk in stream:
            self._begun.add(choice)
            if not self._take(choice, chunk):
                return True
            finished = chunk.finish_reason is not None
        return finished

    async def _side_by_side(self) -> None:
        tasks = [
            asyncio.create_task(self._answer(choice, request))
            for choice, request in enumerate(self._call.requests)
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:  # in their order: of failures that come together, always the same
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _break_off(self) -> None:
        """See ``Generation``."""
        if self._task is not None:
            self._task.cancel()
