"""How answers are sampled, and what that means for training."""

from __future__ import annotations

import pytest

from rejoinder.config import GatewayConfig
from rejoinder.gateway.arrival import choose_sampling, planned_fate
from rejoinder.gateway.body import ChatBody
from rejoinder.types import Fate, Sampling, TurnType

DEFAULTS = GatewayConfig()


@pytest.mark.parametrize(
    ("asked", "room", "expected"),
    [
        ({}, 10_000, 512),
        ({}, 100, 100),
        ({"max_tokens": 7}, 100, 7),
        ({"max_tokens": 7, "max_completion_tokens": 5}, 100, 5),
        ({"max_tokens": 700}, 100, 100),
        ({"max_tokens": 7}, -3, 1),
    ],
)
def test_answers_are_as_long_as_asked_and_as_there_is_room(asked, room, expected):
    body = ChatBody(messages=[], **asked)
    assert choose_sampling(DEFAULTS, body, TurnType.MAIN, room, 100).max_tokens == expected


@pytest.mark.parametrize(("asked", "top_k"), [(-1, 0), (0, 0), (99, 99), (100, 0), (10**30, 0)])
def test_top_k_of_minus_one_or_of_the_whole_vocabulary_keeps_all_tokens(asked, top_k):
    body = ChatBody(messages=[], top_k=asked)
    assert choose_sampling(DEFAULTS, body, TurnType.MAIN, 9, 100).top_k == top_k


def test_a_side_turn_is_called_so_whatever_its_sampling():
    assert planned_fate(DEFAULTS, Sampling(5, temperature=0.0), TurnType.SIDE) is Fate.SIDE
    assert planned_fate(DEFAULTS, Sampling(5), TurnType.MAIN) is None
