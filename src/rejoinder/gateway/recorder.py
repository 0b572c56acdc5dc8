"""Writes turns to the journal, and decides what happens when it cannot be written.

A turn is durable before its answer's last byte leaves. Where the journal fails (disk full, database
gone) a person still gets the answer that the engine has sampled, since nobody may be refused for
the sake of learning; but nothing is dropped in silence: the response says ``"recorded": false``,
the turn is counted, ``/readyz`` fails until a write succeeds, and the log has the error. A turn
whose conversation a person has deleted meanwhile is marked and counted, too; the journal is well.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

import structlog

from rejoinder.errors import UnknownTurn
from rejoinder.gateway.landing import Landings
from rejoinder.gateway.metrics import GatewayMetrics
from rejoinder.journal.base import TurnJournal, WatchJournal
from rejoinder.journal.records import AbortedTurn, FinishedTurn, NextState, OpenTurn

log = structlog.get_logger(__name__)

CONFIRM_S = 30.0
"""How long an answer waits for its row; after that the client is told that it is not certain."""


class GatewayJournal(TurnJournal, WatchJournal, Protocol):
    """What the gateway asks of the journal."""

    def count(self, role: str, name: str, reason: str, amount: int = 1) -> None:
        """Add to a named counter; queued, not waited for."""
        ...


class Recorder:
    """The gateway's writes. Methods never raise for the journal's sake."""

    def __init__(self, journal: GatewayJournal, metrics: GatewayMetrics) -> None:
        self._journal = journal
        self._metrics = metrics
        self._landings = Landings()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._counting = threading.Lock()
        self.failures = 0
        """Writes that failed so far."""
        self.problem: str | None = None
        """Why the last write failed; None after one that was asked for later and succeeded."""

    def failed(self, told: str) -> None:
        """Remember what the journal did not take, for ``/readyz`` and status. From any thread."""
        with self._counting:
            self.failures += 1
            self.problem = told

    def succeeded(self, failures: int) -> None:
        """Forget the problem after a write before which there had been so many failures.

        One that failed meanwhile is news, and stays.
        """
        with self._counting:
            if self.failures == failures:
                self.problem = None

    def open(self, turn: OpenTurn) -> None:
        """Queue the row of an accepted request."""
        self._try("open", lambda: self._journal.open_turn(turn))

    def next_state(self, state: NextState) -> None:
        """Queue what a request says about an earlier answer, and that answer's judging."""
        self._queue("next_state", lambda: self._journal.add_next_state(state))

    def supersede(self, turn_id: str, by: str) -> None:
        """Queue the end of a turn that a retry replaces."""
        self._queue("supersede", lambda: self._journal.supersede(turn_id, by))

    def ambiguous(self, turn_ids: Sequence[str]) -> None:
        """Queue that a reply fits several turns."""
        self._queue("ambiguous", lambda: self._journal.mark_ambiguous(turn_ids))

    def abort(self, turn: AbortedTurn) -> Future[None] | None:
        """Queue the end of a broken answer; None where the journal refuses."""
        return self._queue("abort", lambda: self._journal.abort_turn(turn))

    def close_session(self, session_id: str) -> None:
        """Queue the end of a session that its client has ended."""
        self._queue("close_session", lambda: self._journal.close_session(session_id, "done"))

    async def written(self, futures: Sequence[Future[None]]) -> None:
        """Wait until queued writes are done, well or not, but not for ever."""
        if futures:
            waiting = [asyncio.wrap_future(future) for future in futures]
            done, _ = await asyncio.wait(waiting, timeout=CONFIRM_S)
            for future in done:
                future.exception()  # ``_settle`` has dealt with it

    def finish(self, turns: Sequence[FinishedTurn]) -> Awaitable[bool]:
        """Queue answers at once; awaited, it says whether they are certainly durable."""
        before = self.failures
        queued = [self._try("finish", partial(self._journal.finish_turn, turn)) for turn in turns]
        landings = [one if one is None else self._landings.of(one, CONFIRM_S) for one in queued]
        return self._confirmed(landings, before)

    async def _confirmed(
        self, landings: Sequence[asyncio.Future[None] | None], failures: int
    ) -> bool:
        confirmed = [await self._confirm(landing) for landing in landings]
        self._metrics.unrecorded.inc(confirmed.count(False))
        if any(confirmed):
            self.succeeded(failures)
        return all(confirmed)

    async def _confirm(self, written: asyncio.Future[None] | None) -> bool:
        if written is None:
            return False
        try:
            await written
        except Exception as error:  # noqa: BLE001 - any journal's failure; the answer still goes out
            self._failed("finish", error)
            return False
        return True

    def _queue(self, what: str, write: Callable[[], Future[None]]) -> Future[None] | None:
        future = self._try(what, write)
        if future is not None:
            future.add_done_callback(lambda done: self._settle(what, done))
        return future

    def _settle(self, what: str, future: Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._failed(what, error)

    def _try(self, what: str, write: Callable[[], object]) -> Future[None] | None:
        try:
            result = write()
        except Exception as error:  # noqa: BLE001 - as in ``_confirm``
            self._failed(what, error)
            return None
        return result if isinstance(result, Future) else None

    def _failed(self, what: str, error: BaseException) -> None:
        if isinstance(error, UnknownTurn):  # no fault of the journal's
            self.count("deleted_meanwhile", what)
            log.info("not recorded", write=what, reason=str(error))
            return
        told = str(error)
        if isinstance(error, TimeoutError):
            told = f"nothing was written within {CONFIRM_S:g} s: does another program hold it?"
        self.failed(f"{what}: {told}")
        self.count("journal_failed", what)
        log.error("journal write failed", write=what, error=told)

    # --- counters that status shows -----------------------------------------------------------

    def count(self, name: str, reason: str) -> None:
        """Count something for ``status``; written with the next heartbeat. From any thread."""
        with self._counting:
            self._counts[name, reason] += 1

    def flush_counts(self) -> None:
        """Queue the counts since the last call."""
        with self._counting:
            counts, self._counts = self._counts, Counter()
        for (name, reason), amount in counts.items():
            try:
                self._journal.count("gateway", name, reason, amount)
            except Exception as error:  # noqa: BLE001 - as in ``_confirm``; kept for the next time
                with self._counting:
                    self._counts[name, reason] += amount
                self.failed(f"count: {error}")
