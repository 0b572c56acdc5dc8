"""Runs the gateway: one worker in this process, or several in processes of their own.

All workers take connections from one socket that the caller has bound before anything else, so a
taken port is known at once. Each has its own journal writer and its own connection to the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import socket
from collections.abc import Callable, Iterator, Sequence

import structlog
import uvicorn
import uvloop
from fastapi import FastAPI

from rejoinder.algorithms.registry import build_algorithm
from rejoinder.config import LOOPBACK, Config
from rejoinder.engine.base import Engine
from rejoinder.engine.connect import connect_engine
from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.gateway.app import create_app
from rejoinder.gateway.auth import KEYS_VARIABLE, KeyRing, load_keys
from rejoinder.gateway.heartbeat import new_owner
from rejoinder.gateway.http import HttpConfig
from rejoinder.gateway.service import Service
from rejoinder.gateway.workers import Worker, supervise
from rejoinder.journal.sql import SqlJournal
from rejoinder.log import secrets_of, set_up_logging

log = structlog.get_logger(__name__)

SPARE_FILES = 256
"""Journal, logs, models and the like."""
SETTLE_S = 3.0
"""How long answers that are broken off may take to tell their clients; then they are cut off."""


def run_gateway(
    config: Config, sockets: Sequence[socket.socket], *, handed_over: bool = False
) -> None:
    """Serve on bound sockets until SIGTERM or SIGINT.

    Args:
        config: the resolved configuration.
        sockets: bound; they need not listen.
        handed_over: another process holds the sockets too and will start a successor, for which
            new connections shall wait at the end. Else they are refused with 503 while answers in
            progress are finished.

    Raises:
        ConfigError: keys are needed and missing, or the model cannot be found.
        RejoinderError: the gateway could not start; the log says why.
    """
    check_bound(sockets, load_keys(config.gateway))
    if config.gateway.workers == 1:
        serve(config, sockets, Worker(new_owner(), hands_over=handed_over))
        return
    supervise(config, sockets, handed_over=handed_over)


def check_bound(sockets: Sequence[socket.socket], keys: KeyRing) -> None:
    """Refuse sockets that strangers can reach where there are no keys (rule 9).

    Raises:
        ConfigError: as said.
    """
    for bound in sockets:
        address = bound.getsockname()
        host = address[0] if isinstance(address, tuple) else "localhost"
        if not keys and host not in LOOPBACK and not host.startswith("127."):
            raise ConfigError(
                f"the gateway's socket {host} is reachable from other machines, which needs keys: "
                f"set {KEYS_VARIABLE}=tenant:name:key, or gateway.host = '127.0.0.1'"
            )


def serve(
    config: Config,
    sockets: Sequence[socket.socket],
    worker: Worker,
    make_engine: Callable[[Config], Engine] = connect_engine,
) -> None:
    """Run one worker in this process."""
    set_up_logging(config.log_level, secrets=secrets_of(config))
    allow_files(2 * config.gateway.max_connections + SPARE_FILES)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, sockets, worker, make_engine))


def allow_files(wanted: int) -> None:
    """Let this process open so many files, as far as the system lets it.

    A connection is a file, and so is the one to the engine behind it. Many systems allow 1024
    unless one asks; beyond that no connection is accepted, and none to the engine is made.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        log.warning(
            "the system allows fewer open files than gateway.max_connections may need",
            allowed=most,
            needed=wanted,
        )


async def _serve(
    config: Config,
    sockets: Sequence[socket.socket],
    worker: Worker,
    make_engine: Callable[[Config], Engine],
) -> None:
    engine = make_engine(config)
    try:
        rule = build_algorithm(config.trainer)
        with SqlJournal(config.journal_url, rule=rule) as journal:
            app = create_app(
                config,
                engine,
                journal,
                owner=worker.owner,
                siblings=worker.siblings,
                shared=worker.shared,
            )
            server = Server(app, hands_over=worker.hands_over)
            _tame_garbage_collector()
            await server.serve(sockets=list(sockets))
            if not server.started:
                raise RejoinderError("the gateway could not start; the log above says why")
    finally:
        await engine.close()


def _tame_garbage_collector() -> None:
    """Make collections short: each stops the event loop, by a millisecond per 5,000 objects or so.

    What exists at the start (modules, tokenizer, tables) stays for ever and need not be looked at.
    Small young generations catch nearly all cycles that requests leave behind. What outlives them,
    such as cached prompts, is looked at now and then: cycles that lived long would add up.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 4, 40)


class Server(uvicorn.Server):
    """A server that ends gracefully, and returns afterwards.

    uvicorn's own would kill the process by the signal again, and behind it there is still work to
    do: the journal writes what is queued. The end has up to four parts:

    1. New requests are refused, ``/readyz`` fails, and answers in progress go on. Unless a
       successor takes the socket over, new connections are still accepted, to be told so.
    2. After ``gateway.drain_s`` the answers are broken off, and their clients told.
    3. ``SETTLE_S`` later whatever still runs is cut off.
    4. The turns of all get their end in the journal.
    """

    def __init__(self, app: FastAPI, *, hands_over: bool = False) -> None:
        self._service: Service = app.state.service
        super().__init__(HttpConfig(app, self._service.config.gateway, self._service.count_error))
        self._hands_over = hands_over

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Turn SIGTERM and SIGINT into a graceful end; a second one breaks answers off at once."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self.end)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def end(self) -> None:
        """Begin to end; called again, wait no longer for answers in progress."""
        if self._service.draining:
            self._break_off()
            return
        self._service.drain()
        self.should_exit = self._hands_over
        asyncio.get_running_loop().call_later(self._service.config.gateway.drain_s, self._break_off)

    async def on_tick(self, counter: int) -> bool:
        """Say whether to stop accepting connections; asked ten times a second."""
        if self._service.draining and not self._service.admission.active:
            self.should_exit = True
        return await super().on_tick(counter)

    def _break_off(self) -> None:
        self.should_exit = True
        self._service.end_answers()
        asyncio.get_running_loop().call_later(SETTLE_S, self._cut_off)

    def _cut_off(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
