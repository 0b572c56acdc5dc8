"""The whole system on one machine: what ``rejoinder up`` runs and the demonstration talks to."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rejoinder.config import Config
from rejoinder.errors import EXIT_CONFIG, RejoinderError
from rejoinder.launch.base import RoleEnded, RoleRunning, RoleSpec
from rejoinder.launch.checks import refuse_faults
from rejoinder.launch.home import ensure_home, freeze_config, home_lock, logs_path, warn_of_exposure
from rejoinder.launch.local import STEADY_S, LocalLauncher
from rejoinder.launch.plan import bind_all
from rejoinder.launch.prepare import prepare
from rejoinder.models.embedded import resolve_model
from rejoinder.net import http_url, reachable

GRACE_S = 45.0
"""Longer than a training step on a laptop takes."""
AFTER_DRAIN_S = 15.0
"""For what a gateway has to do after it has let answers finish."""
TRIES_AT_START = 3
"""Before anything has served, a role that ended so often will not get up by itself."""
_POLL_S = 0.2
_PROBE_S = 2.0


class LocalSystem:
    """Four roles with their ports, from start to end. To be used in a ``with`` statement.

    Entering refuses what cannot work, takes the data directory and binds all ports; ``start``
    prepares and starts; leaving stops what was started.

    Raises:
        RejoinderError: on entering: a fault of the configuration, a directory or port in use.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        """With the ports really bound, once entered."""
        self._lock = home_lock(config)
        self._roles: list[RoleSpec] = []
        self._launcher: LocalLauncher | None = None
        self._has_served = False

    def __enter__(self) -> LocalSystem:
        refuse_faults(self.config)
        ensure_home(self.config)
        warn_of_exposure(self.config)
        self._lock.__enter__()
        try:
            self.config, self._roles = bind_all(self.config)
        except BaseException as error:
            self._lock.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            for role in self._roles:
                if role.listener is not None:
                    role.listener.close()
            self._lock.__exit__(kind, error, trace)

    @property
    def address(self) -> str:
        """Where the API is: ``http://host:port``."""
        return http_url(self.config.gateway.host, self.config.gateway.port)

    def start(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Prepare journal and model, then start the roles.

        Args:
            say: told what is being waited for.

        Raises:
            RejoinderError: the model or the journal cannot be used.
        """
        say(f"preparing the model {self.config.model.path!r}")
        model = fetch_model(self.config.model.path)
        say("preparing the journal")
        prepare(self.config, model)
        self._launcher = LocalLauncher(freeze_config(self.config), logs_path(self.config))
        self._launcher.start(self._roles)

    def watch(self) -> list[RoleEnded]:
        """Restart what died; returns what ended since the last call.

        Raises:
            RejoinderError: nothing has served yet, and a role refuses its configuration or keeps
                ending.
        """
        ended = self._started().watch()
        for event in ended:
            self._give_up_on(event)
        return ended

    def running(self) -> list[RoleRunning]:
        """Return the state of every role."""
        return self._started().running()

    def wait_until_ready(
        self,
        say: Callable[[str], None],
        keep_on: Callable[[], bool] = lambda: True,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """Return when the gateway serves, or when ``keep_on`` says no.

        Args:
            say: told what is being waited for.
            keep_on: asked several times a second.
            tell: told which role has ended, and why; None: ``say`` is.

        Raises:
            RejoinderError: a role cannot start.
        """
        next_probe = 0.0
        while keep_on():
            for event in self.watch():
                (tell or say)(self.told(event))
            if time.monotonic() >= next_probe:
                missing = missing_parts(self.config.gateway.host, self.config.gateway.port)
                if not missing:
                    self._has_served = True
                    return
                say("starting: " + "; ".join(missing))
                next_probe = time.monotonic() + _POLL_S * 2
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End all roles in order; called again while that lasts, by force."""
        if self._launcher is not None:
            self._launcher.stop(max(GRACE_S, self.config.gateway.drain_s + AFTER_DRAIN_S))

    def _started(self) -> LocalLauncher:
        if self._launcher is None:
            raise RuntimeError("start() comes first")
        return self._launcher

    def told(self, event: RoleEnded) -> str:
        """Return in one line what ended, what it said last, and what happens next."""
        return (
            f"the {event.name} (process {event.pid}) {event.cause} after {event.lived_s:.0f} s"
            f"{self._last_words(event, ': ')}; it is started again in {event.restart_in_s:.1f} s"
        )

    def _give_up_on(self, event: RoleEnded) -> None:
        """Raise where restarting is pointless: a role refuses, or nothing has ever worked.

        Once the system has served, it goes on serving whatever happens to a role.
        """
        if self._has_served:
            return
        refused = event.exit_code == EXIT_CONFIG and event.lived_s < STEADY_S
        if not refused and event.lives < TRIES_AT_START:
            return
        said = self._last_words(event) or event.cause
        log_file = self._started().log_of(event.name)
        raise RejoinderError(f"the {event.name} cannot start: {said} (log: {log_file.path})")

    def _last_words(self, event: RoleEnded, before: str = "") -> str:
        """Return the error a role ended with; nothing where it could not say any."""
        if event.exit_code <= 0:  # killed: the last line of its log tells of something else
            return ""
        line = self._started().log_of(event.name).last_line()
        return before + line.removeprefix("error: ") if line else ""


def fetch_model(path: str) -> Path:
    """Return a model's directory, converting or downloading it in a process of its own if need be.

    A conversion needs PyTorch and a gigabyte of memory, which this process would never give back.

    Raises:
        ConfigError: nothing can be found under this name.
        RejoinderError: that process has ended before it was done.
    """
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(resolve_model, path).result()
    except BrokenProcessPool as error:  # Ctrl-C reaches it, too, and may reach it first
        raise RejoinderError(
            "the process that prepares the model ended before it was done: it was interrupted, or "
            "killed for want of memory"
        ) from error


def missing_parts(host: str, port: int) -> Sequence[str]:
    """Ask a gateway what it lacks to serve; empty where it is ready."""
    try:
        with _connection(host, port) as connection:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            body = response.read()
            if response.status == http.client.OK:
                return []
            missing = json.loads(body)["missing"]
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return ["the gateway does not answer yet"]
    # Most problems name their part: "the engine is loading its model".
    return [one if part in one else f"{part}: {one}" for part, one in missing.items()]


@contextmanager
def _connection(host: str, port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(reachable(host), port, timeout=_PROBE_S)
    try:
        yield connection
    finally:
        connection.close()
