"""The border between the engine's thread and event loops."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Delivery:
    """Collects what a step produced and hands it over with one wake-up per event loop."""

    def __init__(self) -> None:
        self._calls: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}

    def add(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        """Run ``call`` in a loop at the next flush."""
        self._calls.setdefault(loop, []).append(call)

    def flush(self) -> None:
        """Hand everything over."""
        calls, self._calls = self._calls, {}
        for loop, batch in calls.items():
            if not loop.is_closed():
                try:
                    loop.call_soon_threadsafe(_run_all, batch)
                except RuntimeError:  # closed between the two lines: nobody is left to tell
                    continue


def _run_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


class Mailbox(Generic[Item]):
    """Items from the engine's thread to one coroutine."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._loop = asyncio.get_running_loop()
        self._items: deque[Item] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, item: Item) -> None:
        """Send an item (engine's thread); it arrives at the end of the step."""
        self._delivery.add(self._loop, lambda: self._arrived(item))

    def _arrived(self, item: Item) -> None:
        self._items.append(item)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def get(self) -> Item:
        """Wait for the next item (event loop)."""
        while not self._items:
            self._reader = self._loop.create_future()
            await self._reader
        return self._items.popleft()
