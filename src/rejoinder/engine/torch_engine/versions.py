"""Policy versions in memory: which are loaded, which is live, and when one may go."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from rejoinder.engine.base import VersionSource
from rejoinder.engine.limits import unknown_version
from rejoinder.engine.torch_engine.forward import Forward
from rejoinder.types import BASE_VERSION

_serials = itertools.count()


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A loaded version. Compared by identity; sequences hold the one they are computed with."""

    source: VersionSource
    forward: Forward
    serial: int = field(default_factory=_serials.__next__)
    """Never used twice in a process: names what a slot's keys and values were computed with."""

    @property
    def version(self) -> int:
        """Number of the version."""
        return self.source.version


class Versions:
    """Owned by the engine's thread; other threads may read."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, int], Weights] = {}
        self._pinned: set[tuple[str, int]] = set()
        self._live: dict[str, int] = {}

    def find(self, policy: str, version: int) -> Weights | None:
        """Return a loaded version, or None."""
        return self._loaded.get((policy, version))

    def resolve(self, policy: str, version: int | None) -> Weights:
        """Return a loaded version; None means the live one.

        Raises:
            UnknownVersion: it is not loaded.
        """
        number = self._live.get(policy) if version is None else version
        weights = None if number is None else self._loaded.get((policy, number))
        if weights is None:
            raise unknown_version(policy, version, self.loaded().get(policy, ()))
        return weights

    def add(self, weights: Weights, *, live: bool) -> list[Weights]:
        """Register a version, make it live if asked; return those that are thereby dropped.

        A version that stops being live is dropped, except the start weights, which judges and
        teachers keep using, and versions that were loaded on purpose without being live.
        """
        key = (weights.source.policy, weights.version)
        dropped: list[Weights] = []
        before = self._loaded.get(key)
        if before is not None and before is not weights:
            dropped.append(before)
        self._loaded[key] = weights
        if not live:
            self._pinned.add(key)
            return dropped
        previous = self._live.get(key[0])
        self._live[key[0]] = key[1]
        if previous not in (None, key[1], BASE_VERSION) and (key[0], previous) not in self._pinned:
            dropped.append(self._loaded.pop((key[0], previous)))
        return dropped

    def remove(self, policy: str, version: int) -> Weights | None:
        """Drop a version; a live one stays until it is replaced, the start weights for ever."""
        self._pinned.discard((policy, version))
        if version in (self._live.get(policy), BASE_VERSION):
            return None
        return self._loaded.pop((policy, version), None)

    def clear(self) -> list[Weights]:
        """Drop all."""
        dropped = list(self._loaded.values())
        self._loaded.clear()
        self._live.clear()
        return dropped

    def live(self) -> dict[str, int]:
        """Live version of each policy."""
        return dict(self._live)

    def loaded(self) -> dict[str, list[int]]:
        """Loaded versions of each policy, ascending."""
        found: dict[str, list[int]] = {}
        for policy, version in sorted(self._loaded):
            found.setdefault(policy, []).append(version)
        return found
