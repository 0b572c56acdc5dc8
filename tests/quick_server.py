"""A server for tests, which ends as soon as it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator

import uvicorn

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of plain HTTP: by default each reads all the certificates of its machine."""
GRACE_S = 1.0
"""How long requests in progress may take to their end."""


class QuickServer(uvicorn.Server):
    """uvicorn itself looks only ten times a second whether it shall end, and pauses at the end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        """Leave the signals to pytest."""
        return contextlib.nullcontext()

    async def main_loop(self) -> None:
        """Wait until ``end`` is called."""
        await self.on_tick(0)
        await self._told.wait()

    def end(self) -> None:
        """Take no new connections, and return from ``serve`` when the others have ended."""
        self.should_exit = True
        self._told.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Do what uvicorn does, without its pauses."""
        for server in self.servers:
            server.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                while state.connections or state.tasks:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.002)
        for task in state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


@contextlib.asynccontextmanager
async def serving(config: uvicorn.Config) -> AsyncIterator[str]:
    """Serve on a free port; yields the URL, and returns when the server has ended."""
    server = QuickServer(config)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        running = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            while not server.started:
                assert not running.done(), "the server did not start"
                await asyncio.sleep(0.002)
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.end()
            await running
