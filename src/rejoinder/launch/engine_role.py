"""The engine role: the engine's server, joined to the registry and to the journal's heartbeats."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from types import FrameType

import structlog

from rejoinder.config import Config
from rejoinder.engine.base import EngineInfo, VersionSource
from rejoinder.engine.client import HttpEngine
from rejoinder.engine.server import run_engine_server
from rejoinder.errors import EngineError
from rejoinder.journal.records import RoleReport
from rejoinder.journal.sql import SqlJournal
from rejoinder.net import http_url
from rejoinder.policy.registry import earlier_sources, live_sources
from rejoinder.types import Json

log = structlog.get_logger(__name__)

ROLE = "engine"
REPORT_S = 2.0


def run_engine(config: Config, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError: the engine cannot start.
        JournalError: the journal cannot be used.
    """
    # The server hands the signal on after it has shut down; the journal is still to be closed.
    signal.signal(signal.SIGTERM, _leave)
    with SqlJournal(config.journal_url) as journal:
        heartbeat = _Heartbeat(journal, listener)
        heartbeat.start()
        try:
            run_engine_server(
                config,
                listener,
                lambda: live_sources(journal),
                heartbeat.note_problem,
                lambda wanted, serving: earlier_sources(journal, wanted, serving),
            )
        finally:
            heartbeat.stop()


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


class _Heartbeat:
    """Reports what the engine serves, by asking it as any client would."""

    def __init__(self, journal: SqlJournal, listener: socket.socket) -> None:
        self._journal = journal
        host, port = listener.getsockname()[:2]
        self._host, self._port = host, port
        self._url = http_url(host, port)
        self._started_at = time.time()
        self._error: str | None = None
        self._error_at: float | None = None
        self._not_taken_up: dict[str, Json] = {}
        """Of each policy the live version that could not be loaded last, and why."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to report."""
        self._send("loading", {})
        self._thread.start()

    def stop(self) -> None:
        """Send the last report."""
        self._stop.set()
        self._thread.join()
        self._send("stopped", {})

    def note_problem(self, source: VersionSource | None, problem: str) -> None:
        """Keep why a version could not be taken up; serving goes on with another one."""
        if source is not None:
            self._not_taken_up[source.policy] = {"version": source.version, "problem": problem}
        version = "registry" if source is None else f"{source.policy}@{source.version}"
        log.error("live version not taken up", version=version, problem=problem)
        self._note(f"{version}: {problem}")

    def _note(self, error: str) -> None:
        self._error, self._error_at = error, time.time()

    def _run(self) -> None:
        asyncio.run(self._report_regularly())

    async def _report_regularly(self) -> None:
        engine = HttpEngine(self._url)
        try:
            while not self._stop.is_set():
                try:
                    info = await engine.info()
                except EngineError:
                    self._send("loading", {})
                else:
                    self._send("ready", self._detail(info))
                await asyncio.to_thread(self._stop.wait, REPORT_S)
        finally:
            await engine.close()

    def _detail(self, info: EngineInfo) -> Json:
        if info.last_error is not None and info.last_error != self._error:
            self._note(info.last_error)
        for policy, failed in list(self._not_taken_up.items()):
            if info.live.get(policy) == failed["version"]:
                self._not_taken_up.pop(policy, None)
        return {
            "name": info.name,
            "live": info.live,
            "not_taken_up": dict(self._not_taken_up),
            "loaded": info.loaded,
            "running": info.running,
            "waiting": info.waiting,
            "context_length": info.context_length,
        }

    def _send(self, state: str, detail: Json) -> None:
        self._journal.report(
            RoleReport(
                role=ROLE,
                instance=f"{ROLE}-{os.getpid()}",
                pid=os.getpid(),
                state=state,
                detail={"host": self._host, "port": self._port, **detail},
                last_error=self._error,
                last_error_at=self._error_at,
                started_at=self._started_at,
                seen_at=time.time(),
            )
        )
