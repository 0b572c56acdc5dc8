"""The engine as a process of its own. PyTorch is imported only when the server runs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import sys
from collections.abc import AsyncIterator
from types import FrameType

import structlog
import uvicorn
from starlette.applications import Starlette

from rejoinder.config import Config, TorchEngineConfig
from rejoinder.engine.app import EngineHolder, engine_app
from rejoinder.engine.base import Engine, VersionSource
from rejoinder.engine.follow import (
    EarlierSources,
    LiveFollower,
    LiveSources,
    Report,
    follow_live,
    log_problem,
    nothing_earlier,
)
from rejoinder.engine.scripted import ScriptedEngine
from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.models.cores import share_cores
from rejoinder.models.embedded import resolve_model
from rejoinder.net import is_local
from rejoinder.types import BASE_VERSION, WeightsKind

log = structlog.get_logger(__name__)

_SWITCH_INTERVAL_S = 0.0005
"""The engine's thread asks for the interpreter's lock thousands of times a second; by default
another thread may keep it 5 ms each time."""
_GRACEFUL_S = 3


async def start_engine(config: Config) -> Engine:
    """Return the engine that the configuration names, serving the start weights.

    Raises:
        ConfigError: the model cannot be found or does not fit the machine.
    """
    model = await asyncio.to_thread(resolve_model, config.model.path)
    if not isinstance(config.engine, TorchEngineConfig):
        return ScriptedEngine(model, config.model.policy, config.engine)
    from rejoinder.engine.torch_engine.engine import TorchEngine
    from rejoinder.models.loading import pick_device, pick_dtype

    device = pick_device(config.model)
    dtype = pick_dtype(config.model, device)
    engine = await asyncio.to_thread(TorchEngine, model, config.engine, dtype, device)
    uri = str(model)
    start = VersionSource(config.model.policy, BASE_VERSION, uri, WeightsKind.FULL, uri)
    try:
        await engine.load(start, live=True)
    except RejoinderError:
        await engine.close()
        raise
    return engine


def run_engine_server(
    config: Config,
    sock: socket.socket,
    live_sources: LiveSources | None = None,
    report: Report = log_problem,
    earlier: EarlierSources = nothing_earlier,
) -> None:
    """Serve until SIGTERM or SIGINT, on a socket that is already bound.

    ``/health`` answers 503 while the model loads. With ``live_sources`` the registry's live
    versions are loaded before the engine is ready, and followed from then on; ``earlier`` says what
    may serve in the place of one that cannot be loaded.

    Raises:
        ConfigError: the engine cannot start, or the socket is not on loopback.
    """
    refuse_other_hosts(sock.getsockname()[0])
    share_cores()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    server = _EngineServer(config, live_sources, report, earlier)
    server.run(sock)


def refuse_other_hosts(host: str) -> None:
    """Refuse a host that can be more than this machine.

    Raises:
        ConfigError: as said.
    """
    if not is_local(host):
        raise ConfigError(
            f"engine.host: the engine knows no keys and must stay on this machine, not {host}; "
            "use 127.0.0.1"
        )


class _Server(uvicorn.Server):
    """Ends at once while the model loads: nobody is served, and no thread can be told to stop."""

    def __init__(self, holder: EngineHolder, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._holder = holder

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal; see the class's text."""
        if self._holder.engine is None:
            os._exit(0)
        super().handle_exit(sig, frame)


class _EngineServer:
    """Runs the application and, beside it, start-up and the registry's follower."""

    def __init__(
        self,
        config: Config,
        live_sources: LiveSources | None,
        report: Report,
        earlier: EarlierSources,
    ) -> None:
        self._config = config
        self._live_sources = live_sources
        self._report = report
        self._earlier = earlier
        self._holder = EngineHolder()
        self._failed: BaseException | None = None
        app = engine_app(self._holder, self._lifespan)
        self._server = _Server(
            self._holder,
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="on",
                timeout_keep_alive=60,
                timeout_graceful_shutdown=_GRACEFUL_S,
            ),
        )

    def run(self, sock: socket.socket) -> None:
        self._server.run(sockets=[sock])
        if self._failed is not None:
            raise self._failed

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(self._start_and_follow())
        task.add_done_callback(self._ended)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._holder.engine is not None:
                await self._holder.engine.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End the process where the engine cannot start; ``run`` raises the reason."""
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()
            self._server.should_exit = True

    async def _start_and_follow(self) -> None:
        engine = await start_engine(self._config)
        poll_s = getattr(self._config.engine, "poll_s", 1.0)
        follower = None
        if self._live_sources is not None:
            follower = LiveFollower(engine, self._live_sources, self._report, self._earlier)
        try:
            if follower is not None:
                await follower.check()
            # What lives now lives as long as the process: later collections need not look at it.
            gc.collect()
            gc.freeze()
            self._holder.engine = engine
            log.info("engine ready", info=await engine.info())
            if follower is not None:
                await follow_live(follower, poll_s)
        finally:
            if self._holder.engine is None:
                await engine.close()
