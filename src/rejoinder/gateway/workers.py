"""Several worker processes on one socket: start, watch, restart, stop."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import structlog
from prometheus_client import multiprocess as metric_files

from rejoinder.config import Config
from rejoinder.errors import RejoinderError
from rejoinder.gateway.heartbeat import new_owner
from rejoinder.gateway.metrics import MULTIPROCESS_VARIABLE

log = structlog.get_logger(__name__)

YOUNG_S = 15.0
"""A worker that ends by itself younger than this could not start: the gateway gives up."""

_context = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class _Worker:
    owner: str
    process: SpawnProcess
    started: float


def supervise(config: Config, sockets: Sequence[socket.socket]) -> None:
    """Run ``gateway.workers`` processes until SIGTERM or SIGINT; replace those that die.

    Raises:
        RejoinderError: a worker cannot start.
    """
    metrics_path = Path(tempfile.mkdtemp(prefix="rejoinder-metrics-"))
    os.environ[MULTIPROCESS_VARIABLE] = str(metrics_path)  # a path, for prometheus-client only
    stop, wake = os.pipe()
    os.set_blocking(wake, False)
    previous = {
        number: signal.signal(number, lambda *_: os.write(wake, b"."))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    workers: dict[int, _Worker] = {}
    try:
        owners = [new_owner() for _ in range(config.gateway.workers)]
        for owner in owners:
            _start(workers, config, sockets, owner, owners)
        while not _watch(workers, stop):
            for sentinel in [s for s, w in workers.items() if not w.process.is_alive()]:
                dead = workers.pop(sentinel)
                _bury(dead, metrics_path)
                owner = new_owner()
                living = [worker.owner for worker in workers.values()]
                _start(workers, config, sockets, owner, [owner, *living])
    finally:
        for worker in workers.values():
            worker.process.terminate()
        for worker in workers.values():
            worker.process.join()
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(stop)
        os.close(wake)
        del os.environ[MULTIPROCESS_VARIABLE]
        shutil.rmtree(metrics_path, ignore_errors=True)


def _watch(workers: dict[int, _Worker], stop: int) -> bool:
    """Wait until a worker dies; returns True when it is time to stop."""
    return stop in wait([*workers, stop])


def _start(
    workers: dict[int, _Worker],
    config: Config,
    sockets: Sequence[socket.socket],
    owner: str,
    siblings: Sequence[str],
) -> None:
    process = _context.Process(
        target=_work, args=(config, list(sockets), owner, list(siblings)), name=f"gateway-{owner}"
    )
    process.start()
    workers[process.sentinel] = _Worker(owner, process, time.monotonic())


def _bury(worker: _Worker, metrics_path: Path) -> None:
    pid, code = worker.process.pid, worker.process.exitcode
    metric_files.mark_process_dead(pid, str(metrics_path))  # type: ignore[no-untyped-call]
    # One that was killed is replaced in any case; one that ends by itself cannot start.
    if code is not None and code >= 0 and time.monotonic() - worker.started < YOUNG_S:
        raise RejoinderError("a gateway worker cannot start; the log above says why")
    log.error("a gateway worker died and is replaced", pid=pid, exit_code=code)


def _work(config: Config, sockets: list[socket.socket], owner: str, siblings: list[str]) -> None:
    """Run in a worker process."""
    # Not before: the environment above must be set when prometheus-client is first imported.
    from rejoinder.gateway.server import serve

    _die_with_parent()
    serve(config, sockets, owner, siblings)


def _die_with_parent() -> None:
    """End this worker when its supervisor was killed: nobody else would."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
