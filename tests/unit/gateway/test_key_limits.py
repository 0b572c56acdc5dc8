"""What a key may ask for, and what it is told when that is too much."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from rejoinder.config import GatewayConfig
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.limits import Admission
from rejoinder.gateway.tally import SharedTally, make_file

KEYS = ("alice", "bob")


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def admission(clock: Clock, shared: SharedTally | None = None, **limits: Any) -> Admission:
    config = GatewayConfig.model_validate_json(GatewayConfig(**limits).model_dump_json())
    return Admission(config, KEYS, shared, clock)


def ask(gate: Admission, key: str = "alice") -> None:
    with gate.admit(key):
        pass


def refusal(gate: Admission, key: str = "alice") -> ApiError:
    with pytest.raises(ApiError) as caught, gate.admit(key):
        pass
    return caught.value


def test_a_bucket_gives_a_minutes_requests_at_once_and_then_evenly(clock):
    gate = admission(clock, requests_per_minute=6)
    for _ in range(6):
        ask(gate)
    refused = refusal(gate)
    assert (refused.status, refused.code) == (429, "rate_limit_exceeded")
    assert refused.headers()["retry-after"] == "10"
    clock.now += 9.9
    assert refusal(gate).headers()["retry-after"] == "1"
    clock.now += 0.1
    ask(gate)
    assert refusal(gate).headers()["retry-after"] == "10"


def test_who_comes_back_when_told_is_let_in(clock):
    gate = admission(clock, requests_per_minute=7)
    for _ in range(50):
        try:
            ask(gate)
        except ApiError as error:
            clock.now += int(error.headers()["retry-after"])
            ask(gate)


def test_a_refused_request_costs_nothing(clock):
    gate = admission(clock, requests_per_minute=1)
    ask(gate)
    for _ in range(100):
        refusal(gate)
    clock.now += 60
    ask(gate)


def test_limits_of_one_key_say_nothing_about_another(clock):
    gate = admission(clock, requests_per_minute=1)
    ask(gate)
    ask(gate, "bob")
    refusal(gate, "bob")


def test_a_key_may_have_limits_of_its_own(clock):
    own = ({"key": "bob", "requests_per_minute": 3, "max_concurrent": 1},)
    gate = admission(clock, requests_per_minute=1, key_limits=own)
    for _ in range(3):
        ask(gate, "bob")
    refusal(gate, "bob")
    with gate.admit("alice"):
        refusal(gate, "alice")
    clock.now += 60
    with gate.admit("bob"):
        assert "1 requests in progress" in refusal(gate, "bob").message


def test_tokens_are_counted_at_the_end_and_a_debt_is_paid_off_before_the_next_request(clock):
    gate = admission(clock, tokens_per_minute=600)
    gate.charge("alice", 599)
    ask(gate)
    gate.charge("alice", 301)
    refused = refusal(gate)
    assert (refused.status, refused.headers()["retry-after"]) == (429, "30")
    clock.now += 30.1
    ask(gate)
    ask(gate, "bob")


def test_places_are_counted_per_key_and_are_free_again_whatever_happens(clock):
    gate = admission(clock, max_concurrent=2)
    with pytest.raises(ZeroDivisionError), gate.admit("alice"):
        _ = 1 / 0
    with gate.admit("alice"), gate.admit("alice"):
        refused = refusal(gate)
        assert "max" not in refused.code
        assert refused.headers()["retry-after"] == "1", "nothing is known yet"
        ask(gate, "bob")
    ask(gate)
    assert gate.active == 0


def test_how_long_requests_took_says_when_a_place_will_be_free(clock):
    gate = admission(clock, max_concurrent=4)
    for _ in range(200):
        with gate.admit("alice"):
            clock.now += 40
    with ExitStack() as places:
        for _ in range(4):
            places.enter_context(gate.admit("alice"))
        assert refusal(gate).headers()["retry-after"] == "10"


def test_the_last_places_of_a_process_are_for_keys_that_have_none(clock):
    gate = admission(clock, max_queued=8)
    with ExitStack() as places:
        for _ in range(7):
            places.enter_context(gate.admit("alice"))
        assert refusal(gate).code == "too_many_requests"
        with gate.admit("bob"):
            assert refusal(gate, "bob").code == "too_many_requests"


def test_a_gateway_that_ends_says_when_somebody_will_listen_again(clock):
    gate = admission(clock)
    gate.close(20)
    clock.now += 5
    refused = refusal(gate)
    assert (refused.status, refused.code) == (503, "shutting_down")
    assert refused.headers() == {
        "retry-after": "16", "x-should-retry": "true", "connection": "close",
    }  # fmt: skip


def test_workers_count_one_keys_requests_and_places_together(clock, tmp_path):
    make_file(tmp_path / "tally", len(KEYS), 2)
    shared = [SharedTally(tmp_path / "tally", 2, worker) for worker in range(2)]
    limits = {"max_concurrent": 2, "requests_per_minute": 4, "tokens_per_minute": 60}
    first, second = (admission(clock, one, **limits) for one in shared)
    with first.admit("alice"), second.admit("alice"):
        assert "2 requests in progress" in refusal(first).message
        assert "2 requests in progress" in refusal(second).message
        ask(first, "bob")
    ask(first)
    ask(second)
    for gate in (first, second):
        assert refusal(gate).headers()["retry-after"] == "15"
    second.charge("bob", 90)
    assert refusal(first, "bob").headers()["retry-after"] == "30"


def test_what_a_dead_worker_held_is_taken_back_and_nothing_else(clock, tmp_path):
    make_file(tmp_path / "tally", len(KEYS), 2)
    shared = [SharedTally(tmp_path / "tally", 2, worker) for worker in range(2)]
    dead, alive = (admission(clock, one, max_concurrent=2) for one in shared)
    with ExitStack() as places:
        for key in KEYS:
            places.enter_context(alive.admit(key))
        for key in KEYS:
            places.enter_context(dead.admit(key))
        assert [refusal(alive, key).status for key in KEYS] == [429, 429]
        shared[0].forget_worker()
        successor = admission(clock, shared[0], max_concurrent=2)
        for key in KEYS:
            with successor.admit(key):
                refusal(alive, key)
