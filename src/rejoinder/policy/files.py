"""Where a policy's versions and checkpoints are on disk, and which of them may go.

The journal says which versions count; the disk says what of them is there. Under
``<home>/policies/<policy>/``: ``versions/v000012/`` holds weights that engines load, and
``checkpoints/v000012/`` what training needs beside them to go on from version 12. A version whose
step changed no weights has the files of its parent; those of the base are not here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

from rejoinder.errors import ConfigError
from rejoinder.journal.records import PolicyVersion
from rejoinder.models.embedded import local_path
from rejoinder.policy.durable import PARTIAL, discard, read_marker
from rejoinder.types import Json, VersionState

_NAME = re.compile(r"v(\d+)")


class PolicyFiles:
    """The directories of one policy."""

    def __init__(self, root: Path, policy: str) -> None:
        """Name the directories; nothing is made.

        Raises:
            ConfigError: the policy's name is not one of a directory.
        """
        if policy in (".", ".."):
            raise ConfigError(f"model.policy: {policy!r} cannot name a directory")
        self._versions = root / policy / "versions"
        self._checkpoints = root / policy / "checkpoints"

    def version(self, number: int) -> Path:
        """Directory of a version's weights."""
        return self._versions / f"v{number:06d}"

    def checkpoint(self, number: int) -> Path:
        """Directory of the optimizer's state after a version's step."""
        return self._checkpoints / f"v{number:06d}"

    def checkpoints(self) -> list[int]:
        """Versions with a complete checkpoint, ascending by number."""
        return [number for number in _numbers(self._checkpoints) if self.marker(number)]

    def marker(self, number: int) -> Json | None:
        """Return what a version's checkpoint says of itself, or None if it is not complete."""
        return read_marker(self.checkpoint(number))

    def holds(self, version: PolicyVersion) -> bool:
        """Whether a version's weights are complete here, be it not where the journal has them."""
        own = self._versions / local_path(version.uri).name
        return is_base(version) or read_marker(own) is not None

    def remove_leftovers(
        self, versions: Collection[PolicyVersion], confirm: Callable[[], None]
    ) -> list[str]:
        """Delete what a killed trainer left: unfinished directories and uncommitted versions.

        Also what retention had forgotten in the journal and not yet deleted. Only the holder of
        the policy's training lease may call it.

        Args:
            versions: all versions of the policy in the journal.
            confirm: raises if the lease is lost; asked before each deletion, because a successor
                may have committed a version that ``versions`` lacks.

        Returns:
            the names of what was deleted.
        """
        known = {one.version for one in versions if one.files}
        removed = []
        for parent in (self._versions, self._checkpoints):
            for path in sorted(parent.iterdir()) if parent.is_dir() else ():
                number = _number(path)
                if path.name.startswith(PARTIAL) or (number is not None and number not in known):
                    confirm()
                    discard(path)
                    removed.append(f"{parent.name}/{path.name}")
        return removed

    def remove_version(self, number: int) -> None:
        """Delete a version's own weights, if it has any, and its checkpoint."""
        discard(self.version(number))
        self.remove_checkpoint(number)

    def remove_checkpoint(self, number: int) -> None:
        """Delete a version's checkpoint."""
        discard(self.checkpoint(number))


def is_base(version: PolicyVersion) -> bool:
    """Whether a version has the start weights: the base itself, and what never moved from it."""
    return version.uri == version.base_uri


def has_weights(version: PolicyVersion) -> bool:
    """Whether a version's weights are complete on disk; the base is taken to be."""
    return is_base(version) or read_marker(local_path(version.uri)) is not None


def expendable(
    versions: Collection[PolicyVersion], needed: Collection[int], keep: int, start: int
) -> list[int]:
    """Return the versions whose weights may be deleted, ascending.

    Kept are the base, the newest ``keep``, live and pinned ones, those ``needed``, and ``start``,
    from which the lineage can begin anew. Orphaned ones are never served again.
    Versions with the same files count as one, and go together.
    """
    with_files = [one for one in versions if one.files and not is_base(one)]
    servable = [one for one in with_files if one.state is not VersionState.ORPHANED]
    newest = sorted(servable, key=lambda one: one.version, reverse=True)
    kept = set(list(dict.fromkeys(one.uri for one in newest))[:keep])
    kept |= {one.uri for one in servable if one.version in needed}
    kept |= {
        one.uri
        for one in with_files
        if one.version == start or one.pinned or one.state is VersionState.LIVE
    }
    return sorted(one.version for one in with_files if one.uri not in kept)


def _numbers(parent: Path) -> list[int]:
    """Numbers of the directories in ``parent``, in numeric order."""
    if not parent.is_dir():
        return []
    return sorted(number for path in parent.iterdir() if (number := _number(path)) is not None)


def _number(path: Path) -> int | None:
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else None
