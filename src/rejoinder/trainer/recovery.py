"""Where training goes on: the newest version of the lineage whose optimizer state is on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import structlog

from rejoinder.errors import JournalError
from rejoinder.journal.base import TrainJournal
from rejoinder.journal.records import Lineage, PolicyVersion
from rejoinder.models.embedded import local_path
from rejoinder.policy.files import PolicyFiles, has_weights, is_base
from rejoinder.policy.registry import PolicyRegistry, in_lineage
from rejoinder.trainer.lease import Lease

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Resumption:
    """What to load, and what it cost."""

    lineage: Lineage
    head: PolicyVersion
    weights: Path | None
    """None: the start weights."""
    checkpoint: Path | None
    """None: the optimizer starts anew."""
    as_served: bool
    """Whether training goes on from just what the version serves: it is where the lineage began,
    after a rollback the version that somebody chose for how it answers."""
    freed: int
    """Samples of orphaned steps that will train again."""


def resume(
    journal: TrainJournal, registry: PolicyRegistry, files: PolicyFiles, lease: Lease, policy: str
) -> Resumption:
    """Clean up after a crash and choose the version to go on from (design, rule 3).

    Versions of the lineage after the newest complete checkpoint become orphaned, and what they
    consumed is free again. Without any checkpoint the lineage begins anew at its first version.

    Raises:
        LeaseLost: another trainer has taken over.
        JournalError: the policy is not registered, or weights are missing on disk.
    """
    lineage = journal.current_lineage(policy)
    versions = registry.versions()
    removed = files.remove_leftovers(versions, lease.confirm)
    if removed:
        log.info("removed what an earlier run left unfinished", directories=removed)
    chosen = _newest_checkpoint(lineage, versions, files)
    target = lineage.from_version if chosen is None else chosen
    freed = 0
    if target != lineage.head_version:
        freed = journal.rewind(lease.name, lease.fence, lineage, target)
        log.warning(
            "went back to the newest checkpoint",
            version=target,
            orphaned_up_to=lineage.head_version,
            samples_freed=freed,
        )
        lineage = journal.current_lineage(policy)
    head = next(one for one in versions if one.version == target)
    if not has_weights(head):
        raise JournalError(
            f"the weights of version {target} of {policy!r} are missing in {local_path(head.uri)}: "
            "restore them, or choose another version with `rejoinder policy rollback`"
        )
    return Resumption(
        lineage=lineage,
        head=head,
        weights=None if is_base(head) else local_path(head.uri),
        checkpoint=None if chosen is None else files.checkpoint(chosen),
        as_served=target == lineage.from_version,
        freed=freed,
    )


def _newest_checkpoint(
    lineage: Lineage, versions: list[PolicyVersion], files: PolicyFiles
) -> int | None:
    """Return the newest version of the lineage, its start included, that can be gone on from."""
    numbers = in_lineage(lineage, versions)
    usable = {one.version: one for one in versions if one.version in numbers}
    for number in reversed(files.checkpoints()):
        # Not where the journal has them: of a home that was moved no version is to be taken back.
        if number in usable and files.holds(usable[number]):
            return number
    return None
