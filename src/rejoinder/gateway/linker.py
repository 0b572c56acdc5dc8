"""Finds what a request replies to: the journal's indexes first, then the rules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace

import structlog

from rejoinder.chat.history import History
from rejoinder.chat.linking import Facts, LinkDecision, NamedSession, decide, session_key
from rejoinder.gateway.identity import Identity
from rejoinder.gateway.metrics import GatewayMetrics
from rejoinder.gateway.splicer import Splicer
from rejoinder.journal.base import TurnJournal
from rejoinder.types import SameRequest, Scope, TurnType

log = structlog.get_logger(__name__)
_NO_ORDER: AbstractAsyncContextManager[None] = nullcontext()
_AT_ONCE = 32
"""Answers of a history that are looked up on the event loop, at most: so many probes of a warm
index take some 0.3 ms, and mostly one tells. Whatever may take longer goes to a thread: ids and
answers to read, and a named session, for which all turns of a chain may be looked at."""


class Linker:
    """Links requests. A journal that cannot be read makes new sessions, never a refusal."""

    def __init__(
        self,
        journal: TurnJournal,
        reads: ThreadPoolExecutor,
        metrics: GatewayMetrics,
        splicer: Splicer,
    ) -> None:
        """The ``splicer`` has fetched the turn that a request continues when it is linked."""
        self._journal = journal
        self._splicer = splicer
        self._reads = reads
        self._metrics = metrics
        self._locks: dict[tuple[Scope, str], _SharedLock] = {}

    def in_order(self, scope: Scope, identity: Identity) -> AbstractAsyncContextManager[None]:
        """Let requests of one named session in one after the other, in order of arrival.

        Held while a request is linked and its turn is opened, not while it is answered.
        """
        if identity.session is None:
            return _NO_ORDER
        return self._one_at_a_time((scope, identity.session))

    @asynccontextmanager
    async def _one_at_a_time(self, key: tuple[Scope, str]) -> AsyncIterator[None]:
        shared = self._locks.setdefault(key, _SharedLock())
        shared.users += 1
        try:
            async with shared.lock:
                yield
        finally:
            shared.users -= 1
            if not shared.users:
                del self._locks[key]

    def link(
        self, history: History, scope: Scope, identity: Identity, continues: str | None = None
    ) -> Linking:
        """Begin to find which turn a request replies to and which session it belongs to.

        ``continues``: the turn whose answer the request says it goes on from.
        """
        named = None
        if identity.session is not None:
            named = NamedSession(identity.session, session_key(scope, identity.session))
        wants_same = identity.turn_type is TurnType.MAIN and (named or identity.retried)
        reading = None
        if history.answers or wants_same:
            facts = Facts(history, named, trace=identity.trace, continues=continues)
            reading = self._decide(facts, scope, bool(wants_same))
        return Linking(history, named, reading, self._metrics)

    def _decide(
        self,
        facts: Facts,
        scope: Scope,
        wants_same: bool,  # noqa: FBT001
    ) -> asyncio.Future[LinkDecision]:
        loop = asyncio.get_running_loop()
        if facts.named is not None or wants_same or len(facts.history.answer_chains) > _AT_ONCE:
            return loop.run_in_executor(
                self._reads, lambda: self._read_on(self._known(facts, scope, wants_same))
            )
        reading: asyncio.Future[LinkDecision] = loop.create_future()
        try:
            known = self._known(facts, scope, wants_same)
            decision = None if known.unread else decide(known)
        except Exception as error:  # noqa: BLE001 - ``Linking.decision`` deals with it
            reading.set_exception(error)
            reading.exception()  # seen: where the rendering fails, too, nobody asks for it
            return reading
        if decision is None or not self._is_at_hand(decision.continues):
            return loop.run_in_executor(self._reads, self._read_on, known)
        reading.set_result(decision)
        return reading

    def _known(self, facts: Facts, scope: Scope, wants_same: bool) -> Facts:  # noqa: FBT001
        """Add what the journal's indexes say."""
        history = facts.history
        external = facts.named.external if facts.named else None
        same: list[SameRequest] = []
        if wants_same:
            same = self._journal.find_same_request(scope, history.request_chain, external)
        # The newest answer first: in most requests it is known, and nothing asks for the others.
        *older, newest = history.answer_chains or [b""]
        matches = self._journal.find_chains(scope, [newest], external) if newest else []
        known = replace(facts, matches=matches, same=same, now=time.time())
        if not older or known.last:
            return known
        found = self._journal.find_chains(scope, older, external)
        return replace(known, matches=[*matches, *found])

    def _read_on(self, known: Facts) -> LinkDecision:
        """Read what takes time, answers and ids of earlier turns, and decide."""
        if unread := known.unread:
            known = replace(known, answers=self._journal.read_answers(unread))
        decision = decide(known)
        if decision.continues is not None:
            self._splicer.fetch(decision.continues)
        return decision

    def _is_at_hand(self, turn_id: str | None) -> bool:
        return turn_id is None or self._splicer.keeps(turn_id)


class Linking:
    """A request's place among earlier turns, which a thread may still be looking for."""

    def __init__(
        self,
        history: History,
        named: NamedSession | None,
        reading: asyncio.Future[LinkDecision] | None,
        metrics: GatewayMetrics,
    ) -> None:
        """``reading`` is None where there is nothing to look up."""
        self._history = history
        self._named = named
        self._reading = reading
        self._metrics = metrics

    async def decision(self) -> LinkDecision:
        """Wait for it; to be called once."""
        if self._reading is None:
            decision = decide(Facts(self._history, self._named))
        else:
            try:
                decision = await self._reading
            except Exception as error:  # noqa: BLE001 - any journal's failure: serve, do not link
                log.error("linking failed", error=str(error))  # noqa: TRY400 - one line is enough
                self._metrics.links.labels("journal_failed").inc()
                return _unlinked(self._named, f"the journal could not be read: {error}")
        self._metrics.links.labels(_outcome(decision)).inc()
        return decision


class _SharedLock:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


def _unlinked(named: NamedSession | None, reason: str) -> LinkDecision:
    session_id = named.session_id if named else None
    why = {"rule": "journal_failed", "why": reason}
    return LinkDecision(
        session_id, None, (), (), (), reason, {"repeat": why, "parent": why, "session": why}
    )


def _outcome(decision: LinkDecision) -> str:
    if decision.supersedes:
        return "retry"
    if decision.ambiguous:
        return "ambiguous"
    if decision.parent_id is not None:
        return "reply"
    return "unmatched" if decision.session_id is not None else "new"
