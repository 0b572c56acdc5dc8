"""Runs the gateway: one worker in this process, or several in processes of their own.

All workers take connections from one socket that the caller has bound before anything else, so a
taken port is known at once. Each has its own journal writer and its own connection to the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Callable, Iterator, Sequence

import structlog
import uvicorn
import uvloop

from rejoinder.algorithms.registry import build_algorithm
from rejoinder.config import LOOPBACK, Config
from rejoinder.engine.base import Engine
from rejoinder.engine.connect import connect_engine
from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.gateway.app import create_app
from rejoinder.gateway.auth import KEYS_VARIABLE, KeyRing, load_keys
from rejoinder.gateway.heartbeat import new_owner
from rejoinder.journal.sql import SqlJournal
from rejoinder.log import secrets_of, set_up_logging

log = structlog.get_logger(__name__)

DRAIN_S = 30
"""How long answers in progress may take after SIGTERM; then they are ended and recorded so."""
KEEP_ALIVE_S = 75
BACKLOG = 2048


def run_gateway(config: Config, sockets: Sequence[socket.socket]) -> None:
    """Serve on bound sockets until SIGTERM or SIGINT.

    Raises:
        ConfigError: keys are needed and missing, or the model cannot be found.
        RejoinderError: the gateway could not start; the log says why.
    """
    check_bound(sockets, load_keys(config.gateway))
    if config.gateway.workers == 1:
        serve(config, sockets, new_owner())
        return
    from rejoinder.gateway.workers import supervise

    supervise(config, sockets)


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
    owner: str,
    siblings: Sequence[str] = (),
    make_engine: Callable[[Config], Engine] = connect_engine,
) -> None:
    """Run one worker in this process."""
    set_up_logging(config.log_level, secrets=secrets_of(config))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, sockets, owner, siblings, make_engine))


async def _serve(
    config: Config,
    sockets: Sequence[socket.socket],
    owner: str,
    siblings: Sequence[str],
    make_engine: Callable[[Config], Engine],
) -> None:
    engine = make_engine(config)
    try:
        rule = build_algorithm(config.trainer)
        with SqlJournal(config.journal_url, rule=rule) as journal:
            app = create_app(config, engine, journal, owner=owner, siblings=siblings)
            server = _Server(
                uvicorn.Config(
                    app,
                    http="httptools",
                    ws="none",
                    lifespan="on",
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    proxy_headers=False,
                    backlog=BACKLOG,
                    timeout_keep_alive=KEEP_ALIVE_S,
                    timeout_graceful_shutdown=DRAIN_S,
                ),
                on_exit=lambda: setattr(app.state.service, "draining", True),
            )
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


class _Server(uvicorn.Server):
    """A server that returns after a signal; uvicorn's own would kill the process by it again.

    Behind it there is still work to do: the journal writes what is queued.
    """

    def __init__(self, config: uvicorn.Config, on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_exit = on_exit

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Turn SIGTERM and SIGINT into a graceful end; a second one ends at once."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _stop(self, number: signal.Signals) -> None:
        self._on_exit()
        self.force_exit = self.should_exit  # uvicorn does so for a second SIGINT only
        self.handle_exit(number, None)
