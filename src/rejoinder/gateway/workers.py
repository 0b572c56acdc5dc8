"""Several worker processes on one socket: start, watch, restart, stop."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import structlog
from prometheus_client import multiprocess as metric_files

from rejoinder.config import Config
from rejoinder.errors import RejoinderError
from rejoinder.gateway.auth import load_keys
from rejoinder.gateway.heartbeat import new_owner
from rejoinder.gateway.metrics import MULTIPROCESS_VARIABLE
from rejoinder.gateway.tally import SharedTally, make_file

log = structlog.get_logger(__name__)

YOUNG_S = 15.0
"""A worker that ends by itself younger than this could not start: the gateway gives up."""

_SIGNALS = 1024
"""More of them are never told at once."""

_context = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Worker:
    """What one worker process is told of itself and of the others."""

    owner: str
    siblings: tuple[str, ...] = ()
    """Owner ids of the other workers."""
    shared: SharedTally | None = None
    """What they count together."""
    hands_over: bool = False
    """See ``server.run_gateway``."""


@dataclass(frozen=True, slots=True)
class _Running:
    worker: Worker
    process: SpawnProcess
    started: float


def supervise(
    config: Config, sockets: Sequence[socket.socket], *, handed_over: bool = False
) -> None:
    """Run ``gateway.workers`` processes until SIGTERM or SIGINT; replace those that die.

    ``handed_over``: see ``server.run_gateway``.

    Raises:
        RejoinderError: a worker cannot start.
    """
    files = Path(tempfile.mkdtemp(prefix="rejoinder-gateway-"))
    metrics_path, tally_path = files / "metrics", files / "tally"
    metrics_path.mkdir()
    os.environ[MULTIPROCESS_VARIABLE] = str(metrics_path)  # a path, for prometheus-client only
    make_file(tally_path, len(load_keys(config.gateway).names), config.gateway.workers)
    stop, wake = os.pipe()
    os.set_blocking(wake, False)
    previous = {
        number: signal.signal(number, lambda *_: os.write(wake, b"."))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    workers: dict[int, _Running] = {}
    try:
        owners = [new_owner() for _ in range(config.gateway.workers)]
        for number, owner in enumerate(owners):
            shared = SharedTally(tally_path, config.gateway.workers, number)
            _start(workers, config, sockets, Worker(owner, tuple(owners), shared, handed_over))
        while not _watch(workers, stop):
            for sentinel in [s for s, w in workers.items() if not w.process.is_alive()]:
                dead = workers.pop(sentinel)
                _bury(dead, metrics_path)
                living = [running.worker.owner for running in workers.values()]
                owner = new_owner()
                successor = replace(dead.worker, owner=owner, siblings=(owner, *living))
                _start(workers, config, sockets, successor)
    finally:
        _end(workers, stop)
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(stop)
        os.close(wake)
        del os.environ[MULTIPROCESS_VARIABLE]
        shutil.rmtree(files, ignore_errors=True)


def _watch(workers: dict[int, _Running], stop: int) -> bool:
    """Wait until a worker dies; returns True when it is time to stop."""
    return stop in wait([*workers, stop])


def _end(workers: dict[int, _Running], stop: int) -> None:
    """Tell all workers to end, and wait for them; told again meanwhile, so are they."""
    os.set_blocking(stop, False)
    living = dict(workers)
    told = True
    while living:
        if told:
            with contextlib.suppress(BlockingIOError):  # where a fault is the reason to end
                os.read(stop, _SIGNALS)
            for running in living.values():
                running.process.terminate()
        ready = wait([*living, stop])
        told = stop in ready
        living = {sentinel: worker for sentinel, worker in living.items() if sentinel not in ready}
    for running in workers.values():
        running.process.join()


def _start(
    workers: dict[int, _Running], config: Config, sockets: Sequence[socket.socket], worker: Worker
) -> None:
    process = _context.Process(
        target=_work, args=(config, list(sockets), worker), name=f"gateway-{worker.owner}"
    )
    process.start()
    workers[process.sentinel] = _Running(worker, process, time.monotonic())


def _bury(dead: _Running, metrics_path: Path) -> None:
    pid, code = dead.process.pid, dead.process.exitcode
    metric_files.mark_process_dead(pid, str(metrics_path))  # type: ignore[no-untyped-call]
    # One that was killed is replaced in any case; one that ends by itself cannot start.
    if code is not None and code >= 0 and time.monotonic() - dead.started < YOUNG_S:
        raise RejoinderError("a gateway worker cannot start; the log above says why")
    assert dead.worker.shared is not None
    dead.worker.shared.forget_worker()
    log.error("a gateway worker died and is replaced", pid=pid, exit_code=code)


def _work(config: Config, sockets: list[socket.socket], worker: Worker) -> None:
    """Run in a worker process."""
    from rejoinder.gateway.server import serve  # which knows this module

    os.setpgid(0, 0)  # Ctrl-C in the terminal reaches the supervisor only, which tells the workers
    _die_with_parent()
    serve(config, sockets, worker)


def _die_with_parent() -> None:
    """End this worker when its supervisor was killed: nobody else would."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
