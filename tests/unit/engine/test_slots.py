"""Which rows are reused, copied and evicted."""

from __future__ import annotations

import numpy as np
import pytest

from rejoinder.engine.torch_engine.slots import SlotPool, common_prefix


class Pool(SlotPool):
    """A pool that notes the copies."""

    def __init__(self, slots: int) -> None:
        self.copies: list[tuple[int, int, int]] = []
        super().__init__(slots, 64, lambda *copy: self.copies.append(copy))

    def fill(self, ids: list[int], serial: int = 1, *, keep: bool = False) -> int:
        """Run a sequence through; return its slot's index."""
        slot = self.acquire(_ids(ids), serial)
        slot.extend(ids[slot.length :])
        if not keep:
            self.release(slot)
        return slot.index


def _ids(ids: list[int]) -> np.ndarray:
    return np.asarray(ids, np.int32)


@pytest.mark.parametrize(
    ("a", "b", "shared"), [([], [1], 0), ([1, 2], [1, 3], 1), ([1, 2], [1, 2, 3], 2), ([5], [6], 0)]
)
def test_common_prefix_counts_equal_leading_ids(a: list[int], b: list[int], shared: int):
    assert common_prefix(_ids(a), _ids(b)) == shared


def test_a_continued_conversation_takes_its_own_slot():
    pool = Pool(3)
    first = pool.fill([1, 2, 3, 4])
    pool.fill([9, 9, 9])
    slot = pool.acquire(_ids([1, 2, 3, 4, 5]), 1)
    assert (slot.index, slot.length, pool.copies) == (first, 4, [])


def test_a_short_common_beginning_is_copied_and_leaves_the_other_conversation_whole():
    pool = Pool(3)
    first = pool.fill([1, 2, 3, 4, 5, 6])
    slot = pool.acquire(_ids([1, 2, 9]), 1)
    assert slot.index != first
    assert slot.length == 2
    assert pool.copies == [(first, slot.index, 2)]
    assert pool.longest_match(_ids([1, 2, 3, 4, 5, 6]), 1)[1] == 6


def test_a_busy_slot_is_copied_and_never_taken():
    pool = Pool(2)
    busy = pool.fill([1, 2, 3, 4], keep=True)
    slot = pool.acquire(_ids([1, 2, 3, 4, 5]), 1)
    assert slot.index != busy
    assert pool.copies == [(busy, slot.index, 4)]


def test_the_only_free_slot_is_taken_even_if_its_conversation_loses_rows():
    pool = Pool(2)
    pool.fill([7, 7], keep=True)
    other = pool.fill([1, 2, 3, 4, 5, 6])
    slot = pool.acquire(_ids([1, 9]), 1)
    assert (slot.index, slot.length, pool.copies) == (other, 1, [])


def test_rows_of_other_weights_are_not_reused():
    pool = Pool(2)
    pool.fill([1, 2, 3], serial=1)
    assert pool.acquire(_ids([1, 2, 3]), 2).length == 0


def test_rows_that_two_weights_computed_are_reused_by_neither():
    pool = Pool(2)
    slot = pool.acquire(_ids([]), 1)
    slot.extend([1, 2, 3])
    slot.mix()
    slot.extend([4])
    pool.release(slot)
    assert pool.acquire(_ids([1, 2, 3, 4]), 1).length == 0
    assert pool.acquire(_ids([1, 2, 3, 4]), 2).length == 0


def test_useless_slots_go_first_and_then_the_least_recently_used():
    pool = Pool(3)
    old, middle, new = pool.fill([1, 1]), pool.fill([2, 2], serial=5), pool.fill([3, 3])
    pool.forget({5})
    assert pool.acquire(_ids([8]), 1).index == middle
    assert pool.acquire(_ids([8]), 1).index == old
    assert pool.acquire(_ids([8]), 1).index == new
    assert not pool.has_free()
