"""The whole system under a benchmark: four real roles, watched by a thread of this process."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from types import TracebackType

from rejoinder.config import Config, TorchEngineConfig
from rejoinder.launch.base import RoleEnded
from rejoinder.launch.system import LocalSystem

_TICK_S = 0.1
READY_S = 300.0
_AT_WORK = ("ready", "collecting", "training")


class _Recorded(LocalSystem):
    """Notes every end of a role, also those while it waits for the first answer."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.ended: list[RoleEnded] = []

    def watch(self) -> list[RoleEnded]:
        ended = super().watch()
        self.ended += ended
        return ended


class LoopProcess:
    """Starts the four roles in ``config.home``, restarts what dies, and ends them on leaving."""

    def __init__(self, config: Config) -> None:
        self._system = _Recorded(config)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor")
        self.failure: BaseException | None = None
        """Why watching ended by itself."""

    def __enter__(self) -> LoopProcess:
        self._system.__enter__()
        try:
            self._system.start(lambda text: print(text, flush=True))
            self._system.wait_until_ready(lambda _: None)
            self._thread.start()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._system.__exit__(kind, error, trace)

    @property
    def config(self) -> Config:
        """With the ports really bound."""
        return self._system.config

    @property
    def ended(self) -> list[RoleEnded]:
        """Every end of a role since the start, in order."""
        return self._system.ended

    @property
    def address(self) -> str:
        """Base of the API."""
        return self._system.address

    @property
    def engine_address(self) -> str:
        """Base of the engine's own interface."""
        engine = self.config.engine
        assert isinstance(engine, TorchEngineConfig)
        return f"http://{engine.host}:{engine.port}"

    def pid(self, role: str) -> int | None:
        """Return a role's process, or None while it is away."""
        return next(one.pid for one in self._system.running() if one.name == role)

    def wait_until_at_work(self) -> None:
        """Return when every role's present process has reported that it does its work."""
        deadline = time.monotonic() + READY_S
        while missing := self._not_at_work():
            self.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"not at work after {READY_S:.0f} s: {missing}")
            time.sleep(_TICK_S)

    def _not_at_work(self) -> list[str]:
        file = Path(self.config.home) / "journal.db"
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
            rows = connection.execute("SELECT role, pid, state FROM role_reports")
            working = {(role, pid) for role, pid, state in rows if state in _AT_WORK}
        return [one.name for one in self._system.running() if (one.name, one.pid) not in working]

    def check(self) -> None:
        """Raise what ended the watching, if it has ended."""
        if self.failure is not None:
            raise self.failure

    def _watch(self) -> None:
        try:
            while not self._stop.wait(_TICK_S):
                self._system.watch()
        except BaseException as error:  # noqa: BLE001 - handed to the main thread by check()
            self.failure = error
