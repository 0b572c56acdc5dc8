"""What whoever owns the data may do with the journal as a whole: measure, export, delete.

No role works with this seam; commands do, and ``up`` applies the limits of retention.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

from rejoinder.types import Json


class UpkeepJournal(Protocol):
    """Calls return when they are done; see ``journal/base.py`` for what holds for all."""

    def size_report(self) -> Json:
        """Return ``bytes`` in use and ``tables`` {name: {rows, bytes}}; reads everything."""
        ...

    def apply_retention(self, keep_days: float | None, max_bytes: int | None) -> Json:
        """Delete whole closed sessions that are too old or take too much space.

        First those closed more than ``keep_days`` ago, then the oldest ones while more than
        ``max_bytes`` are in use; None means no such limit. A session of which something may still
        be judged, trained or freed by a rewind stays. What is deleted is counted.

        Returns ``sessions`` and ``turns`` {age | size: n} deleted, ``kept`` {open | needed | within
        the limits: sessions}, ``bytes`` in use after it and ``above_limit``: whether nothing more
        could be deleted although too much is in use.
        """
        ...

    def list_sessions(
        self,
        limit: int,
        tenant: str | None = None,
        key: str | None = None,
        user: str | None = None,
    ) -> list[Json]:
        """Return the sessions with the newest turns, newest first; ``listing.py`` has the keys."""
        ...

    def find_sessions(
        self,
        names: Sequence[str],
        tenant: str | None = None,
        key: str | None = None,
        user: str | None = None,
    ) -> list[str]:
        """Return the ids of sessions, by their id or what their client called them.

        Without names all of the given tenant, key and user; these narrow names, too.

        Raises:
            JournalError: a name is not known, or several people's clients use it.
        """
        ...

    def tally_sessions(self, session_ids: Sequence[str]) -> Json:
        """Return what ``delete_sessions`` would, and change nothing."""
        ...

    def delete_sessions(self, session_ids: Sequence[str]) -> Json:
        """Delete sessions with everything of theirs, at once, whatever they are at.

        A turn that is being answered goes, too: the write of its answer fails as ``UnknownTurn``.
        A step that is being computed from a sample of theirs is refused. What was accepted before
        is not written afterwards; a later request of the session is a new conversation. What does
        not train because of this is counted.

        Returns ``sessions``, ``turns``, ``answering`` (turns that were being answered),
        ``judgings`` (replies that the judge had not dealt with), ``waiting`` and ``trained``
        (samples), and ``learnt`` [{policy, versions, live, holds, back_to}]: which versions
        learnt from them, whether the live one holds that, and the newest version before, with its
        weights kept, that it comes from; and ``bytes`` in use after it.
        """
        ...

    def empty_log(self) -> None:
        """Fold the database's log into its file, so that it holds no text any more.

        Raises:
            JournalError: other programs keep it from happening.
        """
        ...

    def scrub(self) -> None:
        """Write the database's file anew, so that nothing that was deleted is in it.

        Other writers wait meanwhile.

        Raises:
            JournalError: other programs keep it from happening, or the disk is full.
        """
        ...

    def export_records(
        self,
        target: str | Path | IO[bytes],
        since: str | None = None,
        policy: str | None = None,
        tenant: str | None = None,
    ) -> Json:
        """Write turns and steps as JSON lines; see ``journal/export.py`` for their keys.

        ``since`` is the id of the last exported turn: a path is then appended to instead of
        written anew. Returns ``turns``, ``steps`` and ``last``, the id to go on from.
        """
        ...
