"""Which gaps count for a take-up, and which answers count as whole."""

import json

import pytest

from talkers import Answer, read_event
from update_gap import AFTER_S, BEFORE_S, Heard, figures_of

QUIET = [(at / 10, at / 10 + 0.1) for at in range(100)]
COMMITTED, SEEN = 100.0, 100.2


def figures(gaps: list[tuple[float, float]]) -> dict:
    steps = [(0.0, 10.0), (COMMITTED - 5, COMMITTED + 60)]
    return figures_of(Heard(gaps=QUIET + gaps), {1: SEEN}, {1: COMMITTED}, steps)


@pytest.mark.parametrize(
    "stall",
    [
        (SEEN, SEEN + 3.0),  # ends long after the window
        (SEEN + AFTER_S - 0.01, SEEN + 5.0),
        (COMMITTED - 3.0, COMMITTED - BEFORE_S),  # began long before it
        (COMMITTED - 3.0, SEEN + 5.0),  # around it
    ],
)
def test_a_stall_that_lies_in_the_window_only_in_part_counts_for_the_take_up(stall):
    found = figures([stall])
    assert found["longest_gap_at_take_up_ms"][1] == round(1000 * (stall[1] - stall[0]), 1)
    assert found["p99_gap_while_training_ms"] == pytest.approx(100.0)
    assert found["gaps_while_training"] == len(QUIET)


def test_a_stall_away_from_any_take_up_belongs_to_the_baseline():
    found = figures([(SEEN + AFTER_S + 1.0, SEEN + AFTER_S + 4.0)])
    assert found["longest_gap_at_take_up_ms"] == {1: 0.0}
    assert found["gaps_while_training"] == len(QUIET) + 1


def answer_of(finish_reason: str, tokens: int | None) -> Answer:
    answer = Answer(0.0, max_tokens=8)
    choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": finish_reason}
    events = [
        {"id": "a", "choices": [choice], "usage": None},
        {"id": "a", "choices": [end], "usage": None},
    ]
    if tokens is not None:
        events.append({"id": "a", "choices": [], "usage": {"completion_tokens": tokens}})
    for event in events:
        read_event(b"data: " + json.dumps(event).encode(), answer)
    read_event(b"data: [DONE]", answer)
    return answer


def test_an_answer_that_ends_for_its_length_has_all_the_tokens_it_may_have():
    assert answer_of("stop", 3).whole
    assert answer_of("length", 8).whole
    for cut in (answer_of("length", 3), answer_of("length", None), answer_of("error", 8)):
        assert not cut.whole
        assert cut.truncated


def test_truncated_answers_are_counted():
    heard = Heard()
    heard.add(answer_of("length", 3))
    heard.add(answer_of("length", 8))
    assert (heard.requests, heard.truncated, heard.failed) == (2, 1, [])
