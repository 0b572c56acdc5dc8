"""Whose turn it is among callers: nobody waits behind another's crowd."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rejoinder.engine.base import ScoreRequest
from rejoinder.engine.torch_engine.fairness import fair_order
from rejoinder.engine.torch_engine.scheduler import Scheduler
from rejoinder.engine.torch_engine.sequence import Generation, Scoring, Sequence
from rejoinder.engine.torch_engine.slots import SlotPool
from rejoinder.engine.torch_engine.versions import Weights
from rejoinder.errors import EngineBusy
from tiny_model import POLICY, request, source

WEIGHTS = Weights(source(Path("old"), 0), forward=None)  # type: ignore[arg-type]


class _NoDetokenizer:
    def stream(self) -> None:
        """Nothing here has stop strings."""


class _Sink:
    def __init__(self) -> None:
        self.got: list[Any] = []

    def put(self, item: Any) -> None:
        self.got.append(item)


def asking(caller: str, number: int = 1, **options: Any) -> Generation:
    made = replace(request([number], **options), caller=caller)
    return Generation.start(made, _Sink(), _NoDetokenizer(), 256)  # type: ignore[arg-type]


def scoring(**options: Any) -> Scoring:
    return Scoring.start(ScoreRequest("s", [1, 2, 3], POLICY, **options), _Sink())


def scheduler(**options: Any) -> Scheduler:
    chosen = {"max_running": 4, "max_waiting": 200, "prefill_chunk": 16, **options}
    return Scheduler(SlotPool(32, 256, lambda *_: None), **chosen)


def callers(sequences: list[Sequence]) -> str:
    return "".join(one.request.caller for one in sequences)  # type: ignore[union-attr]


def numbered(sequences: list[Sequence]) -> list[Sequence]:
    for order, sequence in enumerate(sequences):
        sequence.order = order
    return sequences


def test_callers_take_turns_and_each_ones_requests_keep_their_order():
    waiting = numbered([asking(caller) for caller in "aaaabbc"])
    order = list(fair_order(waiting, []))
    assert callers(order) == "abcabaa"
    assert [one for one in order if one.request.caller == "a"] == waiting[:4]


def test_who_has_the_fewest_answers_under_way_is_next():
    waiting = numbered([asking(caller) for caller in "aab"])
    assert callers(list(fair_order(waiting, [asking("b"), asking("b")]))) == "aab"
    assert callers(list(fair_order(waiting, [asking("a"), asking("a")]))) == "baa"


def test_priority_comes_before_fairness():
    people, judge = asking("a"), scoring(priority=10)
    waiting = numbered([people, judge, asking("a")])
    waiting.sort(key=lambda one: one.rank)
    assert list(fair_order(waiting, [asking("a")] * 9))[-1] is judge


def test_a_single_request_starts_as_soon_as_any_place_is_free_whatever_another_has_waiting():
    engine = scheduler()
    for number in range(100):
        engine.submit(asking("crowd", number))
    engine.admit(lambda _: WEIGHTS)
    assert callers(engine.running) == "crowd" * 4
    engine.submit(late := asking("single", 200))
    engine.finish(engine.running[0])
    engine.admit(lambda _: WEIGHTS)
    assert late in engine.running


def test_two_crowds_share_the_places():
    engine = scheduler()
    for number in range(20):
        engine.submit(asking("a", number))
    for number in range(20, 40):
        engine.submit(asking("b", number))
    for _ in range(12):
        engine.admit(lambda _: WEIGHTS)
        engine.finish(engine.running[0])
    engine.admit(lambda _: WEIGHTS)
    assert sorted(callers(engine.running)) == ["a", "a", "b", "b"]


def test_in_a_full_queue_a_newcomer_takes_the_last_place_of_the_crowd():
    engine = scheduler(max_waiting=3)
    crowd = [asking("crowd", number) for number in range(3)]
    for one in crowd:
        engine.submit(one)
    with pytest.raises(EngineBusy):
        engine.submit(asking("crowd"))
    engine.submit(asking("single"))
    assert engine.waiting == 3
    assert isinstance(crowd[2].sink.got[0], EngineBusy)  # type: ignore[attr-defined]
    assert crowd[0].sink.got == crowd[1].sink.got == []  # type: ignore[attr-defined]
    with pytest.raises(EngineBusy):
        engine.submit(asking("single", 2))


def test_a_full_queue_of_single_requests_refuses_the_next():
    engine = scheduler(max_waiting=3)
    for caller in "abc":
        engine.submit(asking(caller))
    with pytest.raises(EngineBusy):
        engine.submit(asking("d"))


def test_a_judge_never_takes_the_place_of_a_person():
    engine = scheduler(max_waiting=3)
    people = [asking("crowd", number) for number in range(3)]
    for one in people:
        engine.submit(one)
    with pytest.raises(EngineBusy):
        engine.submit(scoring(priority=10))
    assert engine.waiting == 3
    assert not any(one.sink.got for one in people)  # type: ignore[attr-defined]


def test_a_person_takes_the_place_of_a_judge_however_few_wait():
    engine = scheduler(max_waiting=3)
    judge = scoring(priority=10)
    for one in (judge, asking("crowd", 1), asking("crowd", 2)):
        engine.submit(one)
    engine.submit(person := asking("crowd", 3))
    assert isinstance(judge.sink.got[0], EngineBusy)  # type: ignore[attr-defined]
    assert person in list(engine.sequences())


def test_regression_a_long_queue_was_put_in_order_at_each_step_of_a_full_engine(
    monkeypatch: pytest.MonkeyPatch,
):
    engine = scheduler()
    for number in range(50):
        engine.submit(asking("crowd", number))
    engine.admit(lambda _: WEIGHTS)
    ordered: list[list[Sequence]] = []
    monkeypatch.setattr(
        "rejoinder.engine.torch_engine.scheduler.fair_order",
        lambda waiting, _running: iter(ordered.append(list(waiting)) or []),
    )
    engine.admit(lambda _: WEIGHTS)
    engine.submit(judge := scoring(priority=10))
    engine.admit(lambda _: WEIGHTS)
    assert ordered == [[], [judge]]
