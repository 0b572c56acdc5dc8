"""The registry as engines and the trainer see it: journal rows plus directories of weights."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import structlog

from rejoinder.engine.base import VersionSource
from rejoinder.errors import JournalError
from rejoinder.journal.base import PolicyJournal
from rejoinder.journal.records import Lineage, PolicyVersion, line_of
from rejoinder.policy.files import PolicyFiles, expendable
from rejoinder.types import VersionState

log = structlog.get_logger(__name__)


class RegistryJournal(PolicyJournal, Protocol):
    """What the registry needs of the journal."""

    def forget_checkpoint(self, policy: str, version: int) -> None:
        """Record that a version's optimizer state was deleted."""
        ...


class PolicyRegistry:
    """Versions of one policy."""

    def __init__(self, journal: RegistryJournal, files: PolicyFiles, policy: str) -> None:
        self._journal = journal
        self._files = files
        self._policy = policy

    def versions(self) -> list[PolicyVersion]:
        """Return all versions, oldest first."""
        return self._journal.versions(self._policy)

    def live(self) -> PolicyVersion:
        """Return the version that is served now.

        Raises:
            JournalError: the policy is not registered.
        """
        for version in self._journal.live_versions():
            if version.policy == self._policy:
                return version
        raise JournalError(
            f"policy {self._policy!r} is not registered: start the gateway or the engine first, "
            "or correct model.policy"
        )

    def apply_retention(
        self,
        lineage: Lineage,
        keep_versions: int,
        keep_checkpoints: int,
        spared: Collection[int] = (),
    ) -> None:
        """Delete the oldest checkpoints and weights beyond the limits, no weights of ``spared``.

        Checkpoints that the lineage can go on from are kept up to their number; others are of no
        use. The journal forgets first: a crash in between leaves files that the next start
        deletes, never a row that promises files which are gone.
        """
        versions = self.versions()
        usable = in_lineage(lineage, versions)
        checkpoints = self._files.checkpoints()
        kept = [number for number in checkpoints if number in usable][-keep_checkpoints:]
        for number in sorted(set(checkpoints) - set(kept)):
            self._journal.forget_checkpoint(self._policy, number)
            self._files.remove_checkpoint(number)
        needed = [*kept, *spared]
        for number in expendable(versions, needed, keep_versions, lineage.from_version):
            self._journal.forget_files(self._policy, number)
            self._files.remove_version(number)
            log.info("version's weights deleted", policy=self._policy, version=number)


def in_lineage(lineage: Lineage, versions: Sequence[PolicyVersion]) -> set[int]:
    """Return the versions that a lineage consists of, the one it starts from included."""
    return {
        one.version
        for one in versions
        if one.state is not VersionState.ORPHANED
        and (one.lineage_id == lineage.lineage_id or one.version == lineage.from_version)
    }


def live_sources(journal: PolicyJournal) -> list[VersionSource]:
    """Return where the live version of every policy is: what engines follow."""
    return version_sources(journal.live_versions())


def earlier_sources(
    journal: PolicyJournal, wanted: VersionSource, serving: int | None
) -> list[VersionSource]:
    """Return what may serve in the place of a version that cannot be loaded, newest first.

    That is what it comes from, as far as it has files, and other ones: neither what a rollback
    left nor what a restart took back. The list ends with the version that is served now, if it is
    among them: its weights are in memory, whatever is on disk.
    """
    by_number = {one.version: one for one in journal.versions(wanted.policy)}
    found: list[PolicyVersion] = []
    tried = {wanted.uri}
    parents = {one.version: one.parent for one in by_number.values()}
    for number in line_of(parents, wanted.version)[1:]:
        version = by_number[number]
        if number == serving:
            found.append(version)
            break
        if version.files and version.uri not in tried:
            found.append(version)
            tried.add(version.uri)
    return version_sources(found)


def version_sources(versions: Sequence[PolicyVersion]) -> list[VersionSource]:
    """Return registry rows as an engine wants them."""
    return [
        VersionSource(one.policy, one.version, one.uri, one.kind, one.base_uri) for one in versions
    ]
