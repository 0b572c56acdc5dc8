"""Prompts take as much of a step as those who wait can bear."""

from __future__ import annotations

from rejoinder.engine.torch_engine.pace import Pace


def _measured(token_s: float, most: int = 128) -> Pace:
    pace = Pace(most)
    for _ in range(50):
        pace.note(0, 0.05)
        pace.note(64, 0.05 + 64 * token_s)
    return pace


def test_a_machine_that_was_not_measured_yet_is_taken_for_a_slow_one():
    assert Pace(128).allowed() == 32


def test_a_fast_machine_computes_whole_chunks():
    assert _measured(token_s=1e-4).allowed() == 128


def test_a_slower_machine_computes_what_adds_a_bounded_time():
    assert 45 <= _measured(token_s=0.002).allowed() <= 50


def test_a_very_slow_machine_still_gets_on_with_prompts():
    assert _measured(token_s=0.1).allowed() == 32


def test_a_configured_chunk_is_never_exceeded():
    assert _measured(token_s=0.1, most=8).allowed() == 8


def test_steps_with_few_prompt_tokens_do_not_count():
    pace = _measured(token_s=1e-4)
    for _ in range(50):
        pace.note(2, 0.5)
    assert pace.allowed() == 128
