"""From a step in memory to a version in the registry: files first, then one transaction.

A step that changed no weights writes none: its version has the files of its parent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from rejoinder.errors import JournalError, LeaseLost
from rejoinder.journal.base import TrainJournal
from rejoinder.journal.records import Lineage, PolicyVersion, StepCommit, StepSample
from rejoinder.policy.durable import durable_directory
from rejoinder.policy.files import PolicyFiles
from rejoinder.trainer.base import TrainerBackend
from rejoinder.trainer.lease import Lease
from rejoinder.types import BASE_VERSION, Json, VersionState

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Run:
    """Training under one lease, from one load to the next."""

    lease: Lease
    lineage: Lineage
    head: PolicyVersion
    """The newest version, which the weights in the backend have made."""
    is_current: bool = True
    """False once the registry has moved away from it: load anew."""


class Publisher:
    """Writes versions and checkpoints, and commits steps."""

    def __init__(
        self,
        journal: TrainJournal,
        backend: TrainerBackend,
        files: PolicyFiles,
        checkpoint_every: int,
    ) -> None:
        self._journal = journal
        self._backend = backend
        self._files = files
        self._checkpoint_every = checkpoint_every

    def publish(
        self, run: Run, used: Sequence[StepSample], metrics: dict[str, float], started_at: float
    ) -> bool:
        """Make a step durable and its version live; False if the journal no longer wants it.

        The run then holds the new head. A refused step leaves files that the next start deletes.

        Raises:
            LeaseLost: another trainer has taken over; nothing was committed.
        """
        try:
            is_changed = any(one.untrained is None for one in used)
            version = self._write(run, metrics, is_changed=is_changed)
        except FileExistsError as error:
            # A predecessor's, that fell asleep in the act; cleaning up at the next load removes it.
            log.warning("the step's files cannot take their place", reason=str(error))
            return False
        except OSError:
            run.lease.confirm()  # a successor deletes what it finds unfinished
            raise
        commit = StepCommit(
            lineage_id=run.lineage.lineage_id,
            step=run.lineage.next_step,
            version=version,
            samples=used,
            metrics=metrics,
            started_at=started_at,
            finished_at=time.time(),
        )
        try:
            self._journal.commit_step(run.lease.name, run.lease.fence, commit)
        except LeaseLost:
            raise
        except JournalError as error:
            log.warning("the journal refused the step", step=commit.step, reason=str(error))
            return False
        lineage = self._journal.current_lineage(version.policy)
        run.head = version
        run.is_current = lineage.lineage_id == run.lineage.lineage_id
        run.lineage = lineage
        return True

    def keep_optimizer(self, run: Run) -> None:
        """Write a checkpoint of the head, unless there is one: nothing is then computed again.

        Raises:
            LeaseLost: another trainer has taken over.
        """
        head = run.head
        if head.version == BASE_VERSION:
            return
        if self._files.marker(head.version) is None:
            marker = _marker(run.lineage, head.version, head.step)
            self._write_checkpoint(run, head.version, marker)
        if head.checkpoint_uri is None:  # also where a kill came between the two
            uri = self._files.checkpoint(head.version).as_uri()
            lease = run.lease
            self._journal.record_checkpoint(lease.name, lease.fence, head.policy, head.version, uri)

    def _write(self, run: Run, metrics: dict[str, float], *, is_changed: bool) -> PolicyVersion:
        lineage, head = run.lineage, run.head
        number, step = lineage.next_version, lineage.next_step
        due = step % self._checkpoint_every == 0
        marker = _marker(lineage, number, step)
        uri, kind = head.uri, head.kind
        if is_changed:
            uri, kind = self._files.version(number).as_uri(), self._backend.kind
            with durable_directory(self._files.version(number), marker, run.lease.confirm) as made:
                self._backend.save_weights(made)
        if due:
            self._write_checkpoint(run, number, marker)
        return PolicyVersion(
            policy=lineage.policy,
            version=number,
            uri=uri,
            kind=kind,
            base_uri=head.base_uri,
            parent=head.version,
            lineage_id=lineage.lineage_id,
            step=step,
            state=VersionState.LIVE,
            created_at=time.time(),
            checkpoint_uri=self._files.checkpoint(number).as_uri() if due else None,
            metrics=metrics,
        )

    def _write_checkpoint(self, run: Run, number: int, marker: Json) -> None:
        with durable_directory(self._files.checkpoint(number), marker, run.lease.confirm) as made:
            self._backend.save_checkpoint(made)


def _marker(lineage: Lineage, version: int, step: int | None) -> Json:
    return {
        "policy": lineage.policy,
        "lineage_id": lineage.lineage_id,
        "version": version,
        "step": step,
    }
