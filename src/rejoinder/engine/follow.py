"""Taking up new live versions from the registry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from rejoinder.engine.base import Engine, VersionSource
from rejoinder.errors import EngineError, EngineUnavailable

log = structlog.get_logger(__name__)

LiveSources = Callable[[], list[VersionSource]]
"""Asks the registry for the live version of each policy. Runs in a thread."""
Report = Callable[[VersionSource | None, str], None]
"""Told of a version that cannot be taken up, or (None) that the registry cannot be asked."""

_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0


def log_problem(source: VersionSource | None, problem: str) -> None:
    """Report by a log line."""
    version = None if source is None else source.version
    log.error("live version not taken up", version=version, problem=problem)


@dataclass(slots=True)
class _Failure:
    source: VersionSource
    attempts: int
    retry_at: float


class LiveFollower:
    """Keeps an engine's live versions equal to the registry's.

    A version that cannot be loaded never stops serving: the engine keeps what it has, the problem
    is reported once per attempt, and the attempts get rarer. A newer version is tried at once.
    """

    def __init__(
        self, engine: Engine, live_sources: LiveSources, report: Report = log_problem
    ) -> None:
        self._engine = engine
        self._live_sources = live_sources
        self._report = report
        self._taken: dict[str, VersionSource] = {}
        self._failures: dict[str, _Failure] = {}
        self._registry_problem: str | None = None

    async def check(self) -> None:
        """Ask the registry once and take up what is new.

        Raises:
            EngineUnavailable: the engine is closed.
        """
        try:
            sources = await asyncio.to_thread(self._live_sources)
        except Exception as error:  # noqa: BLE001 - whatever its database raises, serving goes on
            if self._registry_problem != str(error):
                self._report(None, f"the registry cannot be asked: {error}")
            self._registry_problem = str(error)
            return
        self._registry_problem = None
        for source in sources:
            if self._taken.get(source.policy) != source and not self._is_waiting(source):
                await self._take(source)

    def _is_waiting(self, source: VersionSource) -> bool:
        failure = self._failures.get(source.policy)
        return (
            failure is not None and failure.source == source and time.monotonic() < failure.retry_at
        )

    async def _take(self, source: VersionSource) -> None:
        try:
            await self._engine.load(source, live=True)
        except EngineUnavailable:
            raise
        except EngineError as error:
            before = self._failures.get(source.policy)
            attempts = 1 if before is None or before.source != source else before.attempts + 1
            wait = min(_FIRST_WAIT_S * 2 ** (attempts - 1), _LONGEST_WAIT_S)
            self._failures[source.policy] = _Failure(source, attempts, time.monotonic() + wait)
            self._report(source, str(error))
            return
        self._failures.pop(source.policy, None)
        self._taken[source.policy] = source


async def follow_live(
    engine: Engine, live_sources: LiveSources, poll_s: float, report: Report = log_problem
) -> None:
    """Follow the registry until cancelled or until the engine is closed."""
    follower = LiveFollower(engine, live_sources, report)
    while True:
        try:
            await follower.check()
        except EngineUnavailable:
            return
        await asyncio.sleep(poll_s)
