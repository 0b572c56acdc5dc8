"""Answers that leave as they are sampled: what is ready is handed over in bursts.

One task per answer moves chunks from the engine into a list; whoever serves the client takes all
that has gathered at once. So a burst of tokens costs one write and a single token leaves at once.
Where a client does not take what is ready, only so much gathers; then the engine's connection is
not read any more, and what is sampled waits there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from rejoinder.engine.base import GenerateRequest, TokenChunk
from rejoinder.gateway.generation import Call, Generation

Burst = list[tuple[int, TokenChunk]]
"""Chunks, each with its choice."""
MOST_READY = 1024
"""Chunks of one request that wait for a client which does not take them."""


class StreamedGeneration(Generation):
    """See ``Generation``."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._ready: Burst = []
        self._running = len(self._call.requests)
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()
        self._pumps: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> StreamedGeneration:
        loop = asyncio.get_running_loop()
        self._pumps = [
            loop.create_task(self._pump(index, request))
            for index, request in enumerate(self._call.requests)
        ]
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        pending = [task for task in self._pumps if not task.done()]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)

    async def burst(self) -> Burst:
        """Wait for chunks; returns all that are ready as (choice, chunk), [] at the end.

        Raises:
            EngineError: an answer failed or the time is over.
            ClientGone: nobody listens any more.
        """
        while not self._ready:
            if self._failure is not None:
                raise self._failure
            if not self._running:
                return []
            await self._wake.wait()
            self._wake.clear()
        ready, self._ready = self._ready, []
        self._taken.set()
        return ready

    def stop(self, choice: int) -> None:
        """End one answer early: its stop string has appeared."""
        self._pumps[choice].cancel()

    async def _pump(self, choice: int, request: GenerateRequest) -> None:
        try:
            await self._answer(choice, request)
        except Exception as error:  # noqa: BLE001 - whatever it is, ``burst`` raises it
            self._fail(error)
        finally:
            self._running -= 1
            self._wake.set()

    async def _pass_on(self, choice: int, stream: AsyncGenerator[TokenChunk, None]) -> bool:
        """See ``Generation``."""
        finished = False
        async for chunk in stream:
            self._ready.append((choice, chunk))
            self._wake.set()
            if choice not in self._begun:
                self._begun.add(choice)
                await asyncio.sleep(0)  # it leaves before what has come with it is read
            finished = chunk.finish_reason is not None
            while len(self._ready) >= MOST_READY and not finished:
                self._taken.clear()
                await self._taken.wait()
        return finished

    def _break_off(self) -> None:
        """See ``Generation``; what is ready comes before the error."""
        self._wake.set()
