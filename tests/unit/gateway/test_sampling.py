"""How answers are sampled, and what that means for training."""

from __future__ import annotations

import pytest

from rejoinder.config import GatewayConfig
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.sampling import choose_sampling, planned_fate
from rejoinder.types import Fate, Sampling, TurnType

DEFAULTS = GatewayConfig()


@pytest.mark.parametrize(
    ("asked", "room", "expected"),
    [
        ({}, 10_000, 512),
        ({}, 100, 100),
        ({"max_tokens": 7}, 100, 7),
        ({"max_tokens": 700}, 100, 100),
        ({"max_tokens": 7}, -3, 1),
    ],
)
def test_answers_are_as_long_as_asked_and_as_there_is_room(asked, room, expected):
    request = TurnRequest(messages=(), **asked)
    assert choose_sampling(DEFAULTS, request, TurnType.MAIN, room, 100).max_tokens == expected


@pytest.mark.parametrize(("asked", "top_k"), [(0, 0), (99, 99), (100, 0), (10**30, 0)])
def test_top_k_of_zero_or_of_the_whole_vocabulary_keeps_all_tokens(asked, top_k):
    request = TurnRequest(messages=(), top_k=asked)
    assert choose_sampling(DEFAULTS, request, TurnType.MAIN, 9, 100).top_k == top_k


def test_a_side_turn_is_called_so_whatever_its_sampling():
    assert planned_fate(DEFAULTS, Sampling(5, temperature=0.0), TurnType.SIDE) is Fate.SIDE
    assert planned_fate(DEFAULTS, Sampling(5), TurnType.MAIN) is None


@pytest.mark.parametrize("config", [DEFAULTS, GatewayConfig(train_truncated_sampling=True)])
def test_an_answer_that_is_held_to_something_is_served_only(config):
    request = TurnRequest(messages=())
    chosen = choose_sampling(config, request, TurnType.MAIN, 100, 100, constrained=True)
    assert chosen.constrained
    assert planned_fate(config, chosen, TurnType.MAIN) is Fate.SAMPLING_NOT_TRAINABLE
