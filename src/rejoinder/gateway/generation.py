"""Runs the engine calls of one request side by side and hands over what is ready, in bursts.

One task per answer moves chunks from the engine into a list; whoever serves the client takes all
that has gathered at once. So a burst of tokens costs one write and a single token leaves at once.
Where a client does not take what is ready, only so much gathers; then the engine's connection is
not read any more, and what is sampled waits there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from starlette.types import Receive

from rejoinder.engine.base import Engine, GenerateRequest, TokenChunk
from rejoinder.errors import EngineError, EngineUnavailable
from rejoinder.gateway.errors import ShuttingDown, timed_out

MOST_READY = 1024
"""Chunks of one request that wait for a client which does not take them."""
RETRY_S = 0.25
"""Between two tries to reach an engine that is away."""


class ClientGone(Exception):
    """The client closed the connection before its answer was complete."""


class Generation:
    """The answers of one request while they are sampled. Used as an async context manager.

    Leaving the context cancels what is still running and waits until the engine has been told.

    An engine that is away, as one that is started again, is asked anew for ``engine_wait_s``: an
    answer without a token may be sampled by whoever comes back, and its client need not know.
    """

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[GenerateRequest],
        receive: Receive,
        limit_s: float,
        engine_wait_s: float,
        running: set[Generation],
        *,
        watched: bool,
    ) -> None:
        """``running`` holds this generation while the context lasts.

        ``watched``: the client sees each token as it comes.
        """
        self._engine = engine
        self._requests = requests
        self._receive = receive
        self._limit_s = limit_s
        self._engine_wait_s = engine_wait_s
        self._all_running = running
        self._watched = watched
        self._ready: list[tuple[int, TokenChunk]] = []
        self._running = len(requests)
        self._failure: Exception | None = None
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._pumps: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Generation:
        loop = asyncio.get_running_loop()
        self._all_running.add(self)
        self._pumps = [
            loop.create_task(self._pump(index, request))
            for index, request in enumerate(self._requests)
        ]
        self._watcher = loop.create_task(self._watch_client())
        self._timer = loop.call_later(self._limit_s, self._fail, timed_out(self._limit_s))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._all_running.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        pending = [task for task in self._pumps if not task.done()]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)

    async def burst(self) -> list[tuple[int, TokenChunk]]:
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

    def end(self) -> None:
        """Break off, for the process ends: ``burst`` says so after what is ready."""
        self._fail(ShuttingDown("this gateway is shutting down; ask again"))

    async def _pump(self, choice: int, request: GenerateRequest) -> None:
        give_up = asyncio.get_running_loop().time() + self._engine_wait_s
        try:
            while not await self._sampled(choice, request, give_up):  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(RETRY_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, ``burst`` raises it
            self._fail(error)
        finally:
            self._running -= 1
            self._wake.set()

    async def _sampled(self, choice: int, request: GenerateRequest, give_up: float) -> bool:
        """Move one answer from the engine; False: the engine is away and may come back."""
        begun = finished = False
        try:
            async with aclosing(self._engine.generate(request)) as stream:
                async for chunk in stream:
                    self._ready.append((choice, chunk))
                    self._wake.set()
                    if self._watched and not begun:
                        await asyncio.sleep(0)  # it leaves before what has come with it is read
                    begun = True
                    finished = chunk.finish_reason is not None
                    while len(self._ready) >= MOST_READY and not finished:
                        self._taken.clear()
                        await self._taken.wait()
        except EngineUnavailable:
            if begun or asyncio.get_running_loop().time() + RETRY_S > give_up:
                raise
            return False
        if not finished:
            raise EngineError("the engine ended an answer without a reason")
        return True

    async def _watch_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._fail(ClientGone())

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        self._wake.set()
