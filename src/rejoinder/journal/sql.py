"""``SqlJournal``: the journal of ``base.py`` on a SQL database, put together from its parts.

Every write of a process goes through one writer thread (``writer.py``); every read uses a
connection of the calling thread. Opening a journal brings its tables up to date.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO

from sqlalchemy.engine import Connection

from rejoinder.errors import JournalError
from rejoinder.journal import (
    deletion,
    explain,
    export,
    feedback,
    judging,
    listing,
    responses,
    retention,
    scrubbing,
    status,
    turns,
    watching,
)
from rejoinder.journal.base import JudgeJournal, SampleRule, TurnJournal, WatchJournal
from rejoinder.journal.capture import Count, TurnGroup
from rejoinder.journal.database import Database
from rejoinder.journal.lost import LostOpenings
from rejoinder.journal.memory import TurnMemory
from rejoinder.journal.migrate import upgrade_database
from rejoinder.journal.payloads import Request, read_request, read_turn_ids
from rejoinder.journal.pending import PendingOpens
from rejoinder.journal.records import (
    AbortedTurn,
    EarlierResponse,
    FeedbackResult,
    FinishedTurn,
    JudgeTask,
    NextState,
    OpenTurn,
    RoleReport,
    SampleSpec,
)
from rejoinder.journal.sql_training import SqlTraining
from rejoinder.journal.upkeep import UpkeepJournal
from rejoinder.journal.writer import QUEUE_LIMIT, Writer
from rejoinder.types import ChainMatch, Fate, Json, Judgement, Message, SameRequest, Scope


class SqlJournal(SqlTraining, TurnJournal, JudgeJournal, WatchJournal, UpkeepJournal):
    """All journal protocols over one database; see ``base.py`` for the calls.

    Raises:
        JournalError: the URL or the file cannot be used, or a newer program wrote it.
    """

    def __init__(
        self,
        url: str,
        queue_limit: int = QUEUE_LIMIT,
        rule: SampleRule = feedback.SCORES_TEACH,
    ) -> None:
        """``rule`` says what a person's score makes: the algorithm, where feedback is taken."""
        self._rule = rule
        self.database = Database(url)
        upgrade_database(self.database)
        self._memory = TurnMemory()
        self._pending = PendingOpens()
        self._lost = LostOpenings()
        self._writer = Writer(
            self.database,
            partial(TurnGroup, self._memory, self._lost, rule),
            self._forget,
            self._lost.explain,
            queue_limit,
        )

    def __enter__(self) -> SqlJournal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write what is queued and close all connections; later calls fail."""
        self._writer.close()
        self.database.close()

    def flush(self) -> None:
        """Return when everything queued before is durable or has failed."""
        self._writer.flush()

    @property
    def backlog(self) -> int:
        """Writes that wait now: a gateway can refuse work before the queue is full."""
        return self._writer.backlog

    def _forget(self, item: object) -> None:
        if isinstance(item, OpenTurn | FinishedTurn):
            self._memory.forget(item.turn_id)
        if isinstance(item, OpenTurn) and item.parent_id is not None:
            self._memory.forget(item.parent_id)  # it may be gone: store the prompt in full

    # --- serving ------------------------------------------------------------------------------

    def find_chains(
        self, scope: Scope, chains: Sequence[bytes], external_session: str | None = None
    ) -> list[ChainMatch]:
        """See ``TurnJournal``; at most the eight newest of each chain and turn type."""
        return turns.find_chains(self.database.reader(), scope, chains, external_session)

    def find_same_request(
        self, scope: Scope, request_chain: bytes, external_session: str | None
    ) -> list[SameRequest]:
        """See ``TurnJournal``; newest first, this process's queued turns included."""
        # Queued ones are read first: a turn that is committed in between shows twice, never not.
        queued = self._pending.same_request(scope, request_chain, external_session)
        known = turns.find_same_request(
            self.database.reader(), scope, request_chain, external_session
        )
        ids = {match.turn_id for match in known}
        return [match for match in queued if match.turn_id not in ids] + known

    def read_answers(self, turn_ids: Sequence[str]) -> dict[str, Message]:
        """See ``TurnJournal``."""
        return turns.read_answers(self.database.reader(), turn_ids)

    def read_turn_ids(self, turn_id: str) -> tuple[list[int], list[int]] | None:
        """See ``TurnJournal``."""
        return read_turn_ids(self.database.reader(), turn_id)

    def read_response(self, scope: Scope, response_id: str) -> bytes | None:
        """See ``TurnJournal``."""
        return responses.read_response(self.database.reader(), scope, response_id)

    def read_earlier(self, scope: Scope, response_id: str) -> EarlierResponse | None:
        """See ``TurnJournal``."""
        return responses.read_earlier(self.database.reader(), scope, response_id)

    def delete_response(self, scope: Scope, response_id: str) -> Future[bool]:
        """See ``TurnJournal``."""
        return self._writer.submit(lambda c: responses.delete_response(c, scope, response_id))

    def find_session(self, scope: Scope, name: str) -> str | None:
        """See ``TurnJournal``; sessions that a queued turn opens are included."""
        queued = self._pending.session(scope, name)
        return turns.find_session(self.database.reader(), scope, name) or queued

    def open_turn(self, turn: OpenTurn) -> None:
        """See ``TurnJournal``."""
        self._pending.add(turn)
        try:
            self._writer.add(turn, lambda _written: self._pending.remove(turn))
        except BaseException as error:  # whatever kept it from the queue, nobody will write it
            self._pending.remove(turn)
            if isinstance(error, JournalError):
                self._lost.add(turn.turn_id, error)
            raise

    def finish_turn(self, turn: FinishedTurn) -> Future[None]:
        """See ``TurnJournal``."""
        return self._writer.add_durable(turn)

    def abort_turn(self, turn: AbortedTurn) -> Future[None]:
        """See ``TurnJournal``."""

        def abort(connection: Connection) -> None:
            with self._lost.named(turn.turn_id):
                turns.abort_turn(connection, turn)

        return self._writer.submit(abort)

    def supersede(self, turn_id: str, by: str) -> Future[None]:
        """See ``TurnJournal``."""

        def replace(connection: Connection) -> None:
            with self._lost.named(turn_id):
                turns.supersede(connection, turn_id, by)

        return self._writer.submit(replace, hurries=False)

    def mark_ambiguous(self, turn_ids: Sequence[str]) -> Future[None]:
        """See ``TurnJournal``."""
        return self._writer.submit(lambda c: turns.mark_ambiguous(c, turn_ids), hurries=False)

    def add_next_state(self, state: NextState) -> Future[None]:
        """See ``TurnJournal``."""
        return self._writer.add_durable(state, hurries=False)

    def add_feedback(
        self, scope: Scope, completion_id: str, choice: int, score: int, text: str | None
    ) -> Future[FeedbackResult]:
        """See ``TurnJournal``; the completion is looked up within the scope's tenant and key."""
        return self._writer.submit(
            lambda c: feedback.record_feedback(
                c, scope, completion_id, choice, score, text, self._rule
            )
        )

    def close_session(self, session_id: str, reason: str) -> Future[None]:
        """See ``TurnJournal``."""
        return self._writer.submit(lambda c: turns.close_session(c, session_id, reason))

    def close_idle_sessions(self, idle_s: float) -> Future[int]:
        """See ``TurnJournal``; at most 100 at once, so call again while that many are closed."""
        return self._writer.submit(lambda c: turns.close_idle(c, idle_s))

    def abort_open_turns(self, owner_prefix: str, alive: Sequence[str]) -> Future[int]:
        """See ``TurnJournal``."""
        return self._writer.submit(lambda c: turns.abort_open_turns(c, owner_prefix, alive))

    def read_request(self, turn_id: str) -> Request:
        """Return a turn's exact prompt ids, and what they were rendered from."""
        return read_request(self.database.reader(), turn_id)

    # --- judging ------------------------------------------------------------------------------

    def claim_judging(self, owner: str, limit: int, lease_s: float) -> list[JudgeTask]:
        """See ``JudgeJournal``."""
        reader = self.database.reader()
        if not judging.any_due(reader):
            return []
        job_ids = self._writer.call(lambda c: judging.claim(c, owner, limit, lease_s))
        return judging.read_tasks(reader, job_ids, owner)

    def commit_judgement(
        self,
        task: JudgeTask,
        judgement: Judgement | None,
        sample: SampleSpec | None,
        fate: Fate | None,
        no_hint: str | None = None,
    ) -> bool:
        """See ``JudgeJournal``."""
        return self._writer.call(
            lambda c: judging.commit(c, task, judgement, sample, fate, no_hint)
        )

    def retry_judging(
        self, task: JudgeTask, after_s: float, error: str, *, counts: bool = True
    ) -> None:
        """See ``JudgeJournal``."""
        self._writer.call(lambda c: judging.retry(c, task, after_s, error, counts=counts))

    def count(self, role: str, name: str, reason: str, amount: int = 1) -> None:
        """See ``JudgeJournal``."""
        self._writer.add(Count(role, name, reason, amount))

    # --- watching -----------------------------------------------------------------------------

    def report(self, report: RoleReport) -> None:
        """See ``WatchJournal``."""
        self._writer.add(report)

    def check_file(self) -> None:
        """See ``WatchJournal``."""
        self.database.check_file()

    def reports(self) -> list[RoleReport]:
        """See ``WatchJournal``."""
        return watching.reports(self.database.reader())

    def apply_retention(self, keep_days: float | None, max_bytes: int | None) -> Json:
        """See ``UpkeepJournal``."""
        report: Json = {"sessions": {"age": 0, "size": 0}, "turns": {"age": 0, "size": 0}}
        oldest = retention.cutoff(keep_days)
        while oldest is not None and self._delete_sessions(report, "age", oldest):
            pass
        used = retention.used_bytes(self.database.reader())
        while max_bytes is not None and used > max_bytes:
            if not self._delete_sessions(report, "size", None):
                break
            used = retention.used_bytes(self.database.reader())
        if any(report["sessions"].values()):
            while self._writer.call(retention.give_back):
                pass
        above = max_bytes is not None and used > max_bytes
        kept = retention.kept_sessions(self.database.reader())
        return {**report, "kept": kept, "bytes": used, "above_limit": above}

    def _delete_sessions(self, report: Json, reason: str, closed_before: float | None) -> int:
        count, deleted = self._writer.call(lambda c: retention.delete_oldest(c, closed_before))
        if count:
            report["sessions"][reason] += count
            report["turns"][reason] += deleted
            self.count("retention", "turns", reason, deleted)
        return count

    def list_sessions(
        self,
        limit: int,
        tenant: str | None = None,
        key: str | None = None,
        user: str | None = None,
    ) -> list[Json]:
        """See ``UpkeepJournal``."""
        with self.database.snapshot() as connection:
            return listing.list_sessions(connection, limit, tenant, key, user)

    def find_sessions(
        self,
        names: Sequence[str],
        tenant: str | None = None,
        key: str | None = None,
        user: str | None = None,
    ) -> list[str]:
        """See ``UpkeepJournal``."""
        return deletion.find_sessions(self.database.reader(), names, tenant, key, user)

    def tally_sessions(self, session_ids: Sequence[str]) -> Json:
        """See ``UpkeepJournal``."""
        with self.database.snapshot() as connection:
            return deletion.tally(connection, session_ids).report(connection)

    def delete_sessions(self, session_ids: Sequence[str]) -> Json:
        """See ``UpkeepJournal``."""
        found = deletion.Tally()
        for some in deletion.in_parts(session_ids, retention.SESSIONS_AT_ONCE):
            found.add(self._writer.call(partial(deletion.delete_sessions, session_ids=some)))
        while self._writer.call(retention.give_back):
            pass
        reader = self.database.reader()
        return {**found.report(reader), "bytes": retention.used_bytes(reader)}

    def empty_log(self) -> None:
        """See ``UpkeepJournal``."""
        scrubbing.empty_log(self.database)

    def scrub(self) -> None:
        """See ``UpkeepJournal``."""
        scrubbing.scrub(self.database)

    def size_report(self) -> Json:
        """See ``UpkeepJournal``."""
        with self.database.snapshot() as connection:
            return retention.size_report(connection)

    def export_records(
        self,
        target: str | Path | IO[bytes],
        since: str | None = None,
        policy: str | None = None,
        tenant: str | None = None,
    ) -> Json:
        """See ``UpkeepJournal``."""
        if isinstance(target, str | Path):
            path = Path(target)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab" if since else "wb") as file:
                return export.write_records(
                    self.database.reader(), file, since, policy=policy, tenant=tenant
                )
        return export.write_records(
            self.database.reader(), target, since, policy=policy, tenant=tenant
        )

    def explain_turn(self, any_id: str) -> list[Json]:
        """See ``WatchJournal``."""
        with self.database.snapshot() as connection:
            return explain.explain_turn(connection, any_id)

    def similar_ids(self, text: str, limit: int) -> list[str]:
        """See ``WatchJournal``."""
        return explain.similar_ids(self.database.reader(), text, limit)

    def status(self, policy: str, max_staleness: int) -> Json:
        """See ``WatchJournal``."""
        with self.database.snapshot() as connection:
            return status.status(connection, policy, max_staleness, time.time())
