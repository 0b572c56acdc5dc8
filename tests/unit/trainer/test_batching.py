"""Packing turns into micro-batches."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.algorithms.base import TokenSignal
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.batching import pack, plan, row_length

CPU = torch.device("cpu")


def turn(
    prompt: list[int], answer: list[int], mask: list[bool], weight: float = 0.5
) -> SignalledTurn:
    signal = TokenSignal(np.arange(len(answer), dtype=np.float32), np.array(mask))
    return SignalledTurn(
        prompt_ids=prompt,
        answer_ids=answer,
        behaviour=[-float(id_) for id_ in answer],
        temperature=0.5 + weight,
        signal=signal,
        weight=weight,
        is_current=weight == 0.5,
    )


def test_each_learning_token_is_predicted_by_the_one_before_it() -> None:
    first = turn([10, 11], [12, 13, 14], [True, True, True])
    second = turn([20], [21, 22], [True, True], weight=0.25)
    batch = pack([first, second], CPU)
    assert batch.ids.tolist() == [[10, 11, 12, 13, 20, 21]]  # the last ids predict nothing
    assert batch.segments.lengths == (4, 2)
    assert batch.predict.tolist() == [1, 2, 3, 4, 5]
    assert batch.targets.tolist() == [12, 13, 14, 21, 22]
    assert batch.behaviour.tolist() == [-12, -13, -14, -21, -22]
    assert batch.advantages.tolist() == [0, 1, 2, 0, 1]
    assert batch.weights.tolist() == [0.5, 0.5, 0.5, 0.25, 0.25]
    assert batch.temperature.tolist() == [1, 1, 1, 0.75, 0.75]
    assert batch.is_current.tolist() == [True, True, True, False, False]


def test_only_tokens_of_the_mask_are_predicted() -> None:  # B041, B043, B047
    batch = pack([turn([10], [11, 12, 13], [True, False, True])], CPU)
    assert batch.ids.tolist() == [[10, 11, 12]]
    assert batch.predict.tolist() == [0, 2]
    assert batch.targets.tolist() == [11, 13]
    assert batch.advantages.tolist() == [0, 2]


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=30), budget=st.integers(1, 100))
def test_a_plan_holds_every_row_once_and_keeps_the_budget(lengths: list[int], budget: int) -> None:
    groups = plan(lengths, budget)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        total = sum(lengths[index] for index in group)
        assert total <= budget or len(group) == 1


def test_a_plan_fills_groups_before_it_opens_new_ones() -> None:
    assert plan([10, 60, 40, 30, 50], 100) == [[1, 2], [4, 3, 0]]


def test_a_row_is_as_long_as_what_is_computed() -> None:
    assert row_length(turn([1, 2], [3, 4, 5], [True, True, True])) == 4
