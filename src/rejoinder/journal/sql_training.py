"""What a trainer and the registry of policies ask of a SQL database."""

from __future__ import annotations

from functools import partial

from rejoinder.journal import fitting, leasing, lineages, policies, training, watching
from rejoinder.journal.base import PolicyJournal, SampleRule, TrainJournal
from rejoinder.journal.database import Database
from rejoinder.journal.records import (
    Lineage,
    PolicyVersion,
    RollbackCause,
    StepCommit,
    TrainSample,
)
from rejoinder.journal.writer import Writer
from rejoinder.types import Json


class SqlTraining(TrainJournal, PolicyJournal):
    """These two protocols over one database and its writer; see ``base.py`` for the calls."""

    database: Database
    _writer: Writer

    def acquire_lease(self, name: str, owner: str, ttl_s: float) -> int | None:
        """See ``TrainJournal``."""
        return self._writer.call(lambda c: leasing.acquire(c, name, owner, ttl_s))

    def renew_lease(self, name: str, fence: int, ttl_s: float) -> None:
        """See ``TrainJournal``."""
        self._writer.call(lambda c: leasing.renew(c, name, fence, ttl_s))

    def release_lease(self, name: str, fence: int) -> None:
        """See ``TrainJournal``."""
        self._writer.call(lambda c: leasing.release(c, name, fence))

    def current_lineage(self, policy: str) -> Lineage:
        """See ``TrainJournal``."""
        return self._writer.call(lambda c: lineages.ensure_lineage(c, policy))

    def fit_samples(self, lease: str, fence: int, policy: str, rule: SampleRule) -> int:
        """See ``TrainJournal``."""
        found = fitting.misfits(self.database.reader(), policy, rule)
        ids, put_aside = [*found[0], *found[1]], 0
        for start in range(0, len(ids), fitting.AT_ONCE):
            some = ids[start : start + fitting.AT_ONCE]
            change = partial(fitting.fit_samples, policy=policy, rule=rule, among=some)
            put_aside += self._writer.call(partial(change, lease=lease, fence=fence))
        return put_aside

    def ready_count(self, lineage: Lineage, max_staleness: int) -> int:
        """See ``TrainJournal``."""
        return training.ready_count(self.database.reader(), lineage, max_staleness)

    def take_samples(
        self, lineage: Lineage, limit: int, max_staleness: int, max_tokens: int
    ) -> list[TrainSample]:
        """See ``TrainJournal``.

        Raises:
            JournalError: the lineage was closed by a rollback.
        """
        if training.has_unfit(self.database.reader(), lineage, max_staleness, max_tokens):
            self._writer.call(lambda c: training.drop_unfit(c, lineage, max_staleness, max_tokens))
        with self.database.snapshot() as connection:
            return training.read_samples(connection, lineage, limit, max_staleness)

    def commit_step(self, lease: str, fence: int, commit: StepCommit) -> None:
        """See ``TrainJournal``."""
        self._writer.call(lambda c: training.commit_step(c, lease, fence, commit))

    def record_checkpoint(
        self, lease: str, fence: int, policy: str, version: int, uri: str
    ) -> None:
        """See ``TrainJournal``."""
        self._writer.call(
            lambda c: policies.record_checkpoint(c, lease, fence, policy, version, uri)
        )

    def rewind(self, lease: str, fence: int, lineage: Lineage, to_version: int) -> int:
        """See ``TrainJournal``."""
        return self._writer.call(lambda c: training.rewind(c, lease, fence, lineage, to_version))

    def add_evaluation(
        self, policy: str, version: int, name: str, score: float, detail: Json
    ) -> None:
        """See ``TrainJournal``."""
        self._writer.call(
            lambda c: watching.add_evaluation(c, policy, version, name, score, detail)
        )

    # --- policies -----------------------------------------------------------------------------

    def ensure_policy(self, policy: str, tenant: str, base_uri: str, fingerprint: str) -> None:
        """See ``PolicyJournal``."""
        self._writer.call(
            lambda c: policies.ensure_policy(c, policy, tenant, base_uri, fingerprint)
        )

    def live_versions(self) -> list[PolicyVersion]:
        """See ``PolicyJournal``."""
        return policies.read_versions(self.database.reader(), None, live=True)

    def versions(self, policy: str) -> list[PolicyVersion]:
        """See ``PolicyJournal``."""
        return policies.read_versions(self.database.reader(), policy)

    def rollback(
        self,
        policy: str,
        to_version: int,
        *,
        replay: bool,
        cause: RollbackCause | None = None,
    ) -> Lineage:
        """See ``PolicyJournal``."""
        return self._writer.call(
            lambda c: policies.rollback(c, policy, to_version, replay=replay, cause=cause)
        )

    def forget_files(self, policy: str, version: int) -> None:
        """See ``PolicyJournal``."""
        self._writer.call(lambda c: policies.forget_files(c, policy, version))

    def forget_checkpoint(self, policy: str, version: int) -> None:
        """See ``PolicyJournal``."""
        self._writer.call(lambda c: policies.forget_checkpoint(c, policy, version))
