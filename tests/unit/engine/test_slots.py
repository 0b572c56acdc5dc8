"""Which rows are reused, copied and evicted."""

from __future__ import annotations

import numpy as np
import pytest

from rejoinder.engine.torch_engine.slots import Origin, SlotPool, common_prefix

OURS, NEWER, THEIRS = Origin(1, ""), Origin(2, ""), Origin(1, "theirs")


class Pool(SlotPool):
    """A pool that notes the copies."""

    def __init__(self, slots: int) -> None:
        self.copies: list[tuple[int, int, int]] = []
        super().__init__(slots, 64, lambda *copy: self.copies.append(copy))

    def fill(self, ids: list[int], origin: Origin = OURS, *, keep: bool = False) -> int:
        """Run a sequence through; return its slot's index."""
        slot = self.acquire(_ids(ids), origin)
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
    slot = pool.acquire(_ids([1, 2, 3, 4, 5]), OURS)
    assert (slot.index, slot.length, pool.copies) == (first, 4, [])


def test_a_short_common_beginning_is_copied_and_leaves_the_other_conversation_whole():
    pool = Pool(3)
    first = pool.fill([1, 2, 3, 4, 5, 6])
    slot = pool.acquire(_ids([1, 2, 9]), OURS)
    assert slot.index != first
    assert slot.length == 2
    assert pool.copies == [(first, slot.index, 2)]
    assert pool.longest_match(_ids([1, 2, 3, 4, 5, 6]), OURS)[1] == 6


def test_a_busy_slot_is_copied_and_never_taken():
    pool = Pool(2)
    busy = pool.fill([1, 2, 3, 4], keep=True)
    slot = pool.acquire(_ids([1, 2, 3, 4, 5]), OURS)
    assert slot.index != busy
    assert pool.copies == [(busy, slot.index, 4)]


def test_the_only_free_slot_is_taken_even_if_its_conversation_loses_rows():
    pool = Pool(2)
    pool.fill([7, 7], keep=True)
    other = pool.fill([1, 2, 3, 4, 5, 6])
    slot = pool.acquire(_ids([1, 9]), OURS)
    assert (slot.index, slot.length, pool.copies) == (other, 1, [])


def test_rows_of_other_weights_are_not_reused():
    pool = Pool(2)
    pool.fill([1, 2, 3], OURS)
    assert pool.acquire(_ids([1, 2, 3]), NEWER).length == 0


def test_rows_of_other_salts_are_not_reused_and_give_way_as_all_do():
    pool = Pool(2)
    old = pool.fill([1, 2, 3], THEIRS)
    pool.fill([1, 2, 3], OURS)
    assert pool.longest_match(_ids([1, 2, 3]), THEIRS)[1] == 3
    slot = pool.acquire(_ids([1, 2, 9]), OURS)
    assert (slot.index, slot.length) == (1 - old, 2)
    pool.acquire(_ids([8]), OURS)
    assert pool.longest_match(_ids([1, 2, 3]), THEIRS) == (None, 0)


def test_rows_of_weights_that_are_gone_are_freed_whatever_their_salt():
    pool = Pool(3)
    pool.fill([1, 1], NEWER)
    gone = pool.fill([1, 1], THEIRS)
    pool.forget({THEIRS.serial})
    assert pool.longest_match(_ids([1, 1]), THEIRS) == (None, 0)
    pool.acquire(_ids([9]), OURS)
    assert pool.acquire(_ids([9]), OURS).index in (gone, 2)
    assert pool.longest_match(_ids([1, 1]), NEWER)[1] == 2


def test_rows_that_two_weights_computed_are_reused_by_neither():
    pool = Pool(2)
    slot = pool.acquire(_ids([]), OURS)
    slot.extend([1, 2, 3])
    slot.mix()
    slot.extend([4])
    pool.release(slot)
    assert pool.acquire(_ids([1, 2, 3, 4]), OURS).length == 0
    assert pool.acquire(_ids([1, 2, 3, 4]), NEWER).length == 0


def test_useless_slots_go_first_and_then_the_least_recently_used():
    pool = Pool(3)
    old, middle, new = pool.fill([1, 1]), pool.fill([2, 2], Origin(5, "")), pool.fill([3, 3])
    pool.forget({5})
    assert pool.acquire(_ids([8]), OURS).index == middle
    assert pool.acquire(_ids([8]), OURS).index == old
    assert pool.acquire(_ids([8]), OURS).index == new
    assert not pool.has_free()
