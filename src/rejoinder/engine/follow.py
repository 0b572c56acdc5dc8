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
EarlierSources = Callable[[VersionSource, int | None], list[VersionSource]]
"""Asks the registry what a version comes from, newest first, the one that is served (its number is
given) being the last. Runs in a thread."""
Report = Callable[[VersionSource | None, str], None]
"""Told of a live version that cannot be taken up, or (None) that the registry cannot be asked."""

_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0


def log_problem(source: VersionSource | None, problem: str) -> None:
    """Report by a log line."""
    version = None if source is None else source.version
    log.error("live version not taken up", version=version, problem=problem)


def nothing_earlier(_wanted: VersionSource, _serving: int | None) -> list[VersionSource]:
    """Know of no earlier versions: what is served stays."""
    return []


@dataclass(slots=True)
class _Failure:
    source: VersionSource
    attempts: int = 0
    retry_at: float = 0.0
    fell_back: bool = False
    """Whether what is served instead has been settled."""


class LiveFollower:
    """Keeps an engine's live versions equal to the registry's.

    A version that cannot be loaded never stops serving: the engine takes the newest version that
    it comes from and that loads, which is mostly the one it has. The problem is reported once per
    attempt, and the attempts get rarer. A newer version is tried at once.
    """

    def __init__(
        self,
        engine: Engine,
        live_sources: LiveSources,
        report: Report = log_problem,
        earlier: EarlierSources = nothing_earlier,
    ) -> None:
        self._engine = engine
        self._live_sources = live_sources
        self._report = report
        self._earlier = earlier
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
            self._note_registry(error)
            return
        self._registry_problem = None
        for source in sources:
            if self._taken.get(source.policy) == source:
                self._failures.pop(source.policy, None)
            elif not self._is_waiting(source):
                await self._take(source)

    def _note_registry(self, error: Exception) -> None:
        if self._registry_problem != str(error):
            self._report(None, f"the registry cannot be asked: {error}")
        self._registry_problem = str(error)

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
            failure = self._failures.get(source.policy)
            if failure is None or failure.source != source:
                failure = self._failures[source.policy] = _Failure(source)
            wait = min(_FIRST_WAIT_S * 2**failure.attempts, _LONGEST_WAIT_S)
            failure.attempts += 1
            failure.retry_at = time.monotonic() + wait
            self._report(source, str(error))
            if not failure.fell_back:
                failure.fell_back = await self._fall_back(source)
            return
        self._failures.pop(source.policy, None)
        self._taken[source.policy] = source

    async def _fall_back(self, wanted: VersionSource) -> bool:
        """Serve the newest version that the wanted one comes from; return whether it is settled."""
        serving = (await self._engine.info()).live.get(wanted.policy)
        try:
            sources = await asyncio.to_thread(self._earlier, wanted, serving)
        except Exception as error:  # noqa: BLE001 - as above
            self._note_registry(error)
            return False
        for source in sources:
            if source.version == serving:
                break
            try:
                await self._engine.load(source, live=True)
            except EngineUnavailable:
                raise
            except EngineError as error:
                log.warning(
                    "nor can an earlier version", version=source.version, problem=str(error)
                )
                continue
            self._taken.pop(wanted.policy, None)
            log.warning("an earlier version serves instead", version=source.version)
            break
        return True


async def follow_live(follower: LiveFollower, poll_s: float) -> None:
    """Follow the registry until cancelled or until the engine is closed."""
    while True:
        try:
            await follower.check()
        except EngineUnavailable:
            return
        await asyncio.sleep(poll_s)
