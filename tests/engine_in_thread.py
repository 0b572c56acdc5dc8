"""The engine's process, in a thread of a test."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from rejoinder.engine import server


class EngineInThread:
    """A server in a thread: signals are the process's, so it is ended through its own flag."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, serve: Callable[[socket.socket], None]
    ) -> None:
        """Start it; ``serve`` runs it until its end, on a bound socket."""
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.raised: BaseException | None = None
        self.servers: list[server._EngineServer] = []
        made = server._EngineServer.__init__

        def remember(this: server._EngineServer, *args: object) -> None:
            made(this, *args)  # type: ignore[arg-type]
            self.servers.append(this)

        monkeypatch.setattr(server._EngineServer, "__init__", remember)
        monkeypatch.setattr(server, "share_cores", lambda: None)
        monkeypatch.setattr(server.sys, "setswitchinterval", lambda _: None)
        monkeypatch.setattr(server.gc, "freeze", lambda: None)
        self._thread = threading.Thread(target=self._run, args=(serve,))
        self._thread.start()

    def _run(self, serve: Callable[[socket.socket], None]) -> None:
        try:
            serve(self.sock)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.raised = error

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.sock.getsockname()[1]}"

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition to hold."""
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.01)

    def end(self) -> BaseException | None:
        """Ask the server to end; return what it raised."""
        for running in self.servers:
            running._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.raised
