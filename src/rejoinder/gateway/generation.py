"""The engine calls of one request, for as long as their client and their time last."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Self

from starlette.types import Receive

from rejoinder.engine.base import Engine, GenerateRequest, TokenChunk
from rejoinder.errors import EngineError, EngineUnavailable
from rejoinder.gateway.errors import ShuttingDown, timed_out

RETRY_S = 0.25
"""Between two tries to reach an engine that is away."""
UNWATCHED_S = 0.05
"""How long nobody looks whether the client is still there: many answers have come by then, and a
task of its own for each of them costs a gateway some hundredths of its time."""


class ClientGone(Exception):
    """The client closed the connection before its answer was complete."""


@dataclass(frozen=True, slots=True)
class Call:
    """What one request asks of the engine, and what bounds it."""

    engine: Engine
    requests: Sequence[GenerateRequest]
    """One for each answer."""
    receive: Receive
    """Says when the client has gone."""
    limit_s: float
    """How long the answers may take from now on."""
    engine_wait_s: float
    """How long an engine that is away is asked anew."""
    running: set[Generation]
    """Holds what samples the answers for as long as it does."""


class Generation(ABC):
    """The answers of one request while they are sampled. Used as an async context manager.

    Leaving the context cancels what is still running and waits until the engine has been told.

    An engine that is away, as one that is started again, is asked anew for a while: an answer
    without a token may be sampled by whoever comes back, and its client need not know.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._over = 0.0
        """When the time is over, by the loop's clock."""
        self._begun = set[int]()
        """Choices that have a token."""
        self._failure: Exception | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._call.running.add(self)
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._over = now + self._call.limit_s
        self._timer = loop.call_at(min(now + UNWATCHED_S, self._over), self._watch)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call.running.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def end(self) -> None:
        """Break off, for the process ends."""
        self._fail(ShuttingDown("this gateway is shutting down; ask again"))

    async def _answer(self, choice: int, request: GenerateRequest) -> None:
        """Sample one answer, asking an engine anew that is away and may come back.

        Raises:
            EngineError: the answer failed.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._call.engine_wait_s
        while True:
            try:
                async with aclosing(self._call.engine.generate(request)) as stream:
                    if await self._pass_on(choice, stream):
                        return
                raise EngineError("the engine ended an answer without a reason")
            except EngineUnavailable:
                if choice in self._begun or loop.time() + RETRY_S > give_up:
                    raise
            await asyncio.sleep(RETRY_S)

    @abstractmethod
    async def _pass_on(self, choice: int, stream: AsyncGenerator[TokenChunk, None]) -> bool:
        """Pass an answer on and note in ``_begun`` that it has begun; False: its end is missing.

        It goes through the stream itself, since one generator more costs each token some
        microseconds.
        """

    def _watch(self) -> None:
        """Look after client and time from now on: the answer is none of those that come at once."""
        loop = asyncio.get_running_loop()
        self._watcher = loop.create_task(self._watch_client())
        self._timer = loop.call_at(self._over, self._fail, timed_out(self._call.limit_s))

    async def _watch_client(self) -> None:
        while (await self._call.receive())["type"] != "http.disconnect":
            pass
        self._fail(ClientGone())

    def _fail(self, error: Exception) -> None:
        """Break off; whoever waits for the answers gets the first such error."""
        if self._failure is None:
            self._failure = error
            self._break_off()

    @abstractmethod
    def _break_off(self) -> None:
        """Let whoever waits for the answers see ``_failure``."""
