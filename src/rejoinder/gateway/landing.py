"""From the journal's thread to the event loop: what one commit wrote comes with one wake-up."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future
from functools import partial

_Landed = list[tuple[asyncio.Future[None], Future[None]]]


class Landings:
    """Futures of a thread as futures of the running loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._landed: _Landed = []
        """What the loop has been called for and has not yet seen."""

    def of(self, future: Future[None], seconds: float) -> asyncio.Future[None]:
        """Return a future that resolves as ``future`` does, or fails after a time.

        Cancelling it lets ``future`` go on.

        Raises:
            TimeoutError: by the future that is returned.
        """
        loop = asyncio.get_running_loop()
        here = loop.create_future()
        timer = loop.call_later(seconds, _settle, here, TimeoutError())
        here.add_done_callback(lambda _: timer.cancel())
        future.add_done_callback(partial(self._arrived, loop, here))
        return here

    def _arrived(
        self, loop: asyncio.AbstractEventLoop, here: asyncio.Future[None], future: Future[None]
    ) -> None:
        """Hand over a future that is done; in any thread."""
        if loop.is_closed():
            return
        with self._lock:
            self._landed.append((here, future))
            if len(self._landed) > 1:
                return
        loop.call_soon_threadsafe(self._settle_all)

    def _settle_all(self) -> None:
        with self._lock:
            landed, self._landed = self._landed, []
        for here, future in landed:
            _settle(here, CancelledError() if future.cancelled() else future.exception())


def _settle(here: asyncio.Future[None], error: BaseException | None) -> None:
    if here.done():
        return
    if error is None:
        here.set_result(None)
    else:
        here.set_exception(error)
