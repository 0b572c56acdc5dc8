"""Openings of turns that could not be written, so that what follows from it can name the cause."""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DatabaseError

from rejoinder.errors import JournalError, UnknownTurn
from rejoinder.journal.records import FinishedTurn, NextState, OpenTurn
from rejoinder.journal.schema import deletions, turns

MOST = 4096
_DELETED = "its conversation was deleted meanwhile"


class LostOpenings:
    """Why turns of this process were not opened; the newest ones. Safe from any thread."""

    def __init__(self) -> None:
        self._why: OrderedDict[str, JournalError] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, turn_id: str, why: JournalError) -> None:
        """Remember that the opening of a turn was not written."""
        with self._lock:
            self._why[turn_id] = why
            if len(self._why) > MOST:
                self._why.popitem(last=False)

    def refuse_deleted(self, turn_id: str) -> None:
        """Refuse what a request says whose own turn stays out, as its conversation was deleted.

        Raises:
            UnknownTurn: as said.
        """
        with self._lock:
            why = self._why.get(turn_id)
        if isinstance(why, UnknownTurn):
            raise why

    @contextmanager
    def named(self, turn_id: str) -> Iterator[None]:
        """Let a write to a turn that is not known fail by the first cause of that."""
        try:
            yield
        except UnknownTurn as error:
            cause = self._cause(turn_id)
            if cause is None:
                raise
            raise cause from error

    def explain(self, connection: Connection, item: Any, told: JournalError) -> JournalError:
        """Return why an item was not written: the first cause where it is known, else ``told``."""
        try:
            first = self._first_cause(connection, item, told)
        except DatabaseError:  # it cannot be asked: what is known has to do
            first = told
        if isinstance(item, OpenTurn):
            self.add(item.turn_id, first)
        return first

    def _first_cause(self, connection: Connection, item: Any, told: JournalError) -> JournalError:
        if not _refers_to_nothing(told):
            return told
        if isinstance(item, OpenTurn):
            return UnknownTurn(_DELETED) if _is_deleted(connection, item) else told
        if not isinstance(item, FinishedTurn | NextState):
            return told
        cause = self._cause(item.turn_id)
        if cause is not None:
            return cause
        opened = sa.select(turns.c.turn_id).where(turns.c.turn_id == item.turn_id)
        return told if connection.execute(opened).first() else UnknownTurn(_DELETED)

    def _cause(self, turn_id: str) -> JournalError | None:
        """Return what to tell of a turn whose opening was not written; None of any other."""
        with self._lock:
            why = self._why.get(turn_id)
        if why is None or isinstance(why, UnknownTurn):
            return why
        return JournalError(f"its opening could not be written: {why}")


def _refers_to_nothing(told: JournalError) -> bool:
    return isinstance(told.__cause__, sqlite3.IntegrityError)


def _is_deleted(connection: Connection, turn: OpenTurn) -> bool:
    found = sa.select(deletions.c.session_id).where(
        deletions.c.session_id == turn.session_id, deletions.c.deleted_at >= turn.created_at
    )
    return connection.execute(found).first() is not None
