"""Requests that are queued and not yet committed, so that a process sees its own at once.

Without it, two requests of one session that arrive within a millisecond would not know each other.
"""

from __future__ import annotations

import threading
from typing import Any

from rejoinder.journal.records import OpenTurn
from rejoinder.types import SameRequest, Scope


class PendingOpens:
    """The open turns of this process that a read of the database cannot show yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_request: dict[tuple[Scope, bytes], list[OpenTurn]] = {}
        self._by_session: dict[tuple[Scope, str], list[OpenTurn]] = {}

    def add(self, turn: OpenTurn) -> None:
        """Take note of a queued turn."""
        with self._lock:
            self._by_request.setdefault((turn.scope, turn.request_chain), []).append(turn)
            for name in _names(turn):
                self._by_session.setdefault((turn.scope, name), []).append(turn)

    def remove(self, turn: OpenTurn) -> None:
        """Forget a turn that the database shows, or that could not be written."""
        with self._lock:
            _discard(self._by_request, (turn.scope, turn.request_chain), turn)
            for name in _names(turn):
                _discard(self._by_session, (turn.scope, name), turn)

    def same_request(
        self, scope: Scope, request_chain: bytes, external_session: str | None
    ) -> list[SameRequest]:
        """Return queued turns with this history, newest first."""
        with self._lock:
            turns = list(self._by_request.get((scope, request_chain), ()))
        return [
            SameRequest(
                turn.turn_id,
                turn.session_id,
                turn.parent_id,
                turn.created_at,
                open=True,
                trace=turn.trace,
            )
            for turn in reversed(turns)
            if external_session in (None, turn.external_session, turn.session_id)
        ]

    def session(self, scope: Scope, name: str) -> str | None:
        """Return the id of a session that a queued turn opens, by a client's name or that id."""
        with self._lock:
            turns = self._by_session.get((scope, name))
            return turns[0].session_id if turns else None


def _names(turn: OpenTurn) -> set[str]:
    return {turn.session_id, turn.external_session or turn.session_id}


def _discard(index: dict[Any, list[OpenTurn]], key: Any, turn: OpenTurn) -> None:
    turns = index[key]
    turns[:] = [other for other in turns if other is not turn]
    if not turns:
        del index[key]
