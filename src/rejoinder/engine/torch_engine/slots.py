"""Which slot holds which tokens, and reuse of what a slot has already computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


class Origin(NamedTuple):
    """What a slot's rows come from; they serve sequences of the same origin alone."""

    serial: int
    """Of the weights that computed them."""
    salt: str
    """Whose tokens they are: see ``GenerateRequest.cache_salt``."""


class Slot:
    """One slot's book-keeping: rows [0, length) hold the keys and values of ``ids``."""

    __slots__ = ("busy", "ids", "index", "length", "origin", "used_at")

    def __init__(self, index: int, context: int) -> None:
        self.index = index
        self.ids: Ids = np.empty(context, np.int32)
        self.length = 0
        self.origin: Origin | None = None
        """Of all rows; None where no single weights computed them."""
        self.busy = False
        self.used_at = 0
        """Order of release, for eviction of the least recently used."""

    def extend(self, ids: Sequence[int] | Ids) -> None:
        """Note that the rows of ``ids`` have been computed."""
        end = self.length + len(ids)
        self.ids[self.length : end] = ids
        self.length = end

    def drop_last(self) -> None:
        """Forget the last row: it will be computed once more."""
        self.length -= 1

    def reset(self, origin: Origin | None = None) -> None:
        """Forget the rows; the next ones will be of ``origin``."""
        self.length = 0
        self.origin = origin

    def mix(self) -> None:
        """Note that other weights will go on: the rows must never serve another sequence."""
        self.origin = None


def common_prefix(a: Ids, b: Ids) -> int:
    """Return how many ids two sequences share at their beginning."""
    size = min(len(a), len(b))
    differ = a[:size] != b[:size]
    return int(differ.argmax()) if differ.any() else size


class SlotPool:
    """All slots. ``copy_rows(source, target, count)`` moves keys and values between slots."""

    def __init__(
        self, slots: int, context: int, copy_rows: Callable[[int, int, int], None]
    ) -> None:
        self._slots = [Slot(index, context) for index in range(slots)]
        self._copy_rows = copy_rows
        self._clock = 0

    @property
    def size(self) -> int:
        """Number of slots."""
        return len(self._slots)

    def has_free(self) -> bool:
        """Whether ``acquire`` will give a slot."""
        return any(not slot.busy for slot in self._slots)

    def longest_match(self, ids: Ids, origin: Origin) -> tuple[Slot | None, int]:
        """Return the slot of this origin that holds most of ``ids``, and how many."""
        best: Slot | None = None
        longest = 0
        for slot in self._slots:
            if slot.origin == origin and slot.length > longest:
                shared = common_prefix(ids, slot.ids[: slot.length])
                if shared > longest:
                    best, longest = slot, shared
        return best, longest

    def acquire(self, ids: Ids, origin: Origin) -> Slot:
        """Take a slot whose first rows already hold as much of ``ids`` as any of its origin.

        ``slot.length`` says how much. A slot that continues (a session's next turn) is taken as
        it is; where most of it belongs to another conversation, or a running sequence holds it,
        the shared rows are copied, so that both can go on.
        """
        best, shared = self.longest_match(ids, origin)
        free = [slot for slot in self._slots if not slot.busy]
        victim = min(
            free, key=lambda slot: (slot.length > 0 and slot.origin is not None, slot.used_at)
        )
        if best is None:
            victim.reset(origin)
        elif not best.busy and (2 * shared >= best.length or len(free) == 1):
            victim = best
            victim.length = shared
        else:
            if victim is best:
                victim = min(
                    (slot for slot in free if slot is not best), key=lambda slot: slot.used_at
                )
            self._copy_rows(best.index, victim.index, shared)
            victim.reset(origin)
            victim.extend(best.ids[:shared])
        victim.busy = True
        return victim

    def release(self, slot: Slot) -> None:
        """Give a slot back; its rows stay for reuse until they are needed."""
        self._clock += 1
        slot.used_at = self._clock
        slot.busy = False

    def forget(self, serials: set[int]) -> None:
        """Make idle slots of weights that are gone the first to be taken."""
        for slot in self._slots:
            if slot.origin is not None and slot.origin.serial in serials and not slot.busy:
                slot.reset()
