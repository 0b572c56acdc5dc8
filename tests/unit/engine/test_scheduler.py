"""What a step computes, and for whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rejoinder.engine.base import ScoreRequest
from rejoinder.engine.torch_engine.scheduler import Scheduler
from rejoinder.engine.torch_engine.sequence import Generation, Scoring, Sequence
from rejoinder.engine.torch_engine.slots import SlotPool
from rejoinder.engine.torch_engine.versions import Weights
from tiny_model import POLICY, request, source

OLD = Weights(source(Path("old"), 0), forward=None)  # type: ignore[arg-type]
NEW = Weights(source(Path("new"), 1), forward=None)  # type: ignore[arg-type]


class _NoDetokenizer:
    def stream(self) -> None:
        """Nothing here has stop strings."""


def _generation(prompt: list[int], **options: Any) -> Generation:
    return Generation.start(request(prompt, **options), None, _NoDetokenizer(), 256)  # type: ignore[arg-type]


def _scoring(ids: list[int], **options: Any) -> Scoring:
    return Scoring.start(ScoreRequest("s", ids, POLICY, **options), None)  # type: ignore[arg-type]


@pytest.fixture
def scheduler() -> Scheduler:
    slots = SlotPool(8, 256, lambda *_: None)
    return Scheduler(slots, max_running=8, max_waiting=8, prefill_chunk=16)


def _start(scheduler: Scheduler, *sequences: Sequence) -> None:
    for sequence in sequences:
        scheduler.submit(sequence)
    scheduler.admit(lambda _: OLD)


def _step(scheduler: Scheduler) -> dict[Sequence, int]:
    """Pretend to compute a step; return how many tokens each sequence got."""
    counts = {}
    for _, works in scheduler.plan():
        for work in works:
            assert work.sequence.slot is not None
            work.sequence.slot.extend(work.span().ids)
            counts[work.sequence] = work.end - work.begin
    return counts


def test_prompts_share_a_chunk_in_order_of_rank_and_single_tokens_are_free(scheduler: Scheduler):
    first, second, short = _generation([1] * 20), _generation([2] * 20), _generation([3])
    _start(scheduler, first, second, short)
    assert _step(scheduler) == {first: 16, short: 1}
    assert _step(scheduler) == {first: 4, second: 12}
    assert _step(scheduler) == {second: 8}


def test_judges_get_a_quarter_of_the_chunk_while_people_wait_and_all_of_it_else(
    scheduler: Scheduler,
):
    judges = [_scoring([n] * 40) for n in (5, 6)]
    person = _generation([1] * 3)
    _start(scheduler, *judges, person)
    assert _step(scheduler) == {person: 3, judges[0]: 4}
    scheduler.finish(person)
    assert _step(scheduler) == {judges[0]: 16}


def test_only_the_logits_that_matter_are_computed(scheduler: Scheduler):
    scoring = _scoring(list(range(10)), start=4, stop=7, priority=0)
    answer = _generation(list(range(20, 30)))
    _start(scheduler, scoring, answer)
    wanted = {work.sequence: work.wanted for _, works in scheduler.plan() for work in works}
    assert wanted[answer] == range(9, 10)
    assert wanted[scoring] == range(3, 6)
    assert scoring.goal == 6


def test_sequences_of_different_weights_are_different_passes(scheduler: Scheduler):
    old, new = _generation([1, 2]), _generation([1, 2])
    old.weights, new.weights = OLD, NEW
    _start(scheduler, old, new)
    assert [(weights, len(works)) for weights, works in scheduler.plan()] == [(OLD, 1), (NEW, 1)]


def test_a_switch_restarts_prompts_and_leaves_answers_and_scores_going(scheduler: Scheduler):
    prompt, answer, pinned = _generation([1] * 20), _generation([2]), _generation([3], version=0)
    scoring = _scoring([4] * 9)
    pinned.weights = OLD
    _start(scheduler, answer, pinned, scoring, prompt)
    _step(scheduler)
    answer.ids.append(7)
    scheduler.switch(POLICY, NEW)
    assert (prompt.weights, prompt.computed) == (NEW, 0)
    assert (answer.weights, answer.computed) == (NEW, 1)
    assert pinned.weights is OLD
    assert scoring.weights is OLD
    assert scheduler.uses(OLD)


def test_people_wait_for_nobody_but_people(scheduler: Scheduler):
    """A judge's prompt that shares the beginning must not hold a person's request back."""
    shared = list(range(100, 150))
    _start(scheduler, _scoring([*shared, 1, 2]), _generation(shared))
    assert len(scheduler.running) == 2
    _start(scheduler, sibling := _generation(shared))
    assert sibling not in scheduler.running


def test_a_short_prompt_need_not_wait_until_a_long_one_is_through(scheduler: Scheduler):
    long, short = _generation([1] * 200), _generation([2] * 12)
    _start(scheduler, long, short)
    assert _step(scheduler) == {long: 8, short: 8}
    assert _step(scheduler) == {long: 12, short: 4}


def test_a_long_prompt_goes_on_however_many_short_ones_come(scheduler: Scheduler):
    long = _generation([1] * 100)
    _start(scheduler, long)
    for number in range(5):
        _start(scheduler, short := _generation([2 + number] * 16))
        assert _step(scheduler)[long] >= 8
        scheduler.finish(short)


def test_background_work_leaves_room_for_people_also_where_slots_are_fewer():
    scheduler = Scheduler(
        SlotPool(2, 256, lambda *_: None), max_running=16, max_waiting=8, prefill_chunk=16
    )
    _start(scheduler, _scoring([4] * 9), _scoring([5] * 9))
    _start(scheduler, person := _generation([1] * 3))
    assert person in scheduler.running


def test_people_who_talk_without_a_pause_do_not_keep_judges_from_their_work():
    for slots in (2, 4, 8, 32):
        pool = SlotPool(slots, 256, lambda *_: None)
        scheduler = Scheduler(pool, max_running=8, max_waiting=64, prefill_chunk=16)
        people = [_generation([one]) for one in range(1, 20)]
        judge = _scoring([1, 2, 3], priority=10)
        _start(scheduler, *people, judge)
        assert judge in scheduler.running, slots
        assert len(scheduler.running) == min(slots, 9)


def test_prompts_of_people_without_an_end_leave_a_part_of_each_step_to_judges(scheduler: Scheduler):
    judge = _scoring([9] * 20, priority=10)
    _start(scheduler, judge, *(_generation([one] * 200) for one in range(1, 5)))
    for _ in range(15):
        if judge not in scheduler.running or judge.computed >= judge.goal:
            break
        _step(scheduler)
    assert judge.computed >= judge.goal


def test_while_a_token_is_waited_for_prompts_of_people_and_judges_take_turns(
    scheduler: Scheduler,
):
    answering = _generation([1])
    person, judge = _generation([2] * 120), _scoring([3] * 60, priority=10)
    _start(scheduler, answering, person, judge)
    steps = []
    for _ in range(8):
        steps.append(_step(scheduler))
        answering.ids.append(7)  # the token that the step sampled
    assert all(step[answering] == 1 for step in steps)
    assert not any(person in step and judge in step for step in steps)
    assert sum(judge in step for step in steps) == 2
    assert sum(person in step for step in steps) == 6


def test_a_token_of_a_judge_takes_turns_with_prompts_where_it_costs_a_pass(scheduler: Scheduler):
    """Guards against three passes' worth of work in one step: each of the two is felt already."""
    answering, person = _generation([1]), _generation([2] * 120)
    judge, judge_of_the_same = _scoring([3] * 2, priority=10), _scoring([4] * 2, priority=10)
    judge.weights = NEW
    _start(scheduler, answering, person, judge, judge_of_the_same)
    steps = []
    for _ in range(4):
        steps.append(_step(scheduler))
        answering.ids.append(7)
    assert all(step[answering] == 1 for step in steps)
    assert judge_of_the_same in steps[0]
    assert [judge in step for step in steps] == [False, False, False, True]
    assert [person in step for step in steps] == [True, True, True, False]


def test_a_token_of_a_judge_waits_for_nobody_where_there_are_no_prompts(scheduler: Scheduler):
    answering, judge = _generation([1]), _scoring([3] * 2, priority=10)
    judge.weights = NEW
    _start(scheduler, answering, judge)
    assert _step(scheduler) == {answering: 1, judge: 1}


def test_a_prompt_starts_again_only_once_however_often_weights_change(scheduler: Scheduler):
    """Guards against long prompts that are never through while updates are frequent. The version
    that computed all of it answers; from its first token on it follows updates as any other."""
    newest = Weights(source(Path("newest"), 2), forward=None)  # type: ignore[arg-type]
    prompt = _generation([1] * 40)
    _start(scheduler, prompt)
    _step(scheduler)
    scheduler.switch(POLICY, NEW)
    _step(scheduler)
    scheduler.switch(POLICY, newest)
    assert (prompt.weights, prompt.computed) == (NEW, 16)
    assert scheduler.uses(NEW)
    prompt.ids.append(7)
    scheduler.switch(POLICY, newest)
    assert prompt.weights is newest


def test_an_ended_sequence_keeps_no_weights_in_memory(scheduler: Scheduler):
    """Its reader may be slow: a replaced version must not wait for that."""
    ended, cancelled = _generation([1]), _generation([2])
    _start(scheduler, ended, cancelled)
    scheduler.finish(ended)
    cancelled.cancelled = True
    scheduler.drop_ended(0.0)
    assert ended.weights is None
    assert cancelled.weights is None
    assert not scheduler.running
