"""What people say of the answer before, restated for one that is still to come."""

from __future__ import annotations

import pytest

from rejoinder.judge.hints.restating import restated


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Please say that in a single short sentence", "Answer in a single short sentence"),
        ("Put the whole answer into two lines", "Answer in two lines"),
        ("Keep it to one short sentence", "Answer in one short sentence"),
        ("Please keep your answer down to 30 words", "Answer in 30 words"),
        ("I want just one short sentence", "Answer in one short sentence"),
        ("Give me one short paragraph", "Answer in one short paragraph"),
        ("Reply with a single brief sentence", "Answer in a single brief sentence"),
        ("Answer with one short sentence about gardening", "Answer in one short sentence"),
        ("Please answer it in one short sentence", "Answer in one short sentence"),
        ("No list, please, just say how", "No list, just say how"),
        ("I want a long answer, please tell me more", "I want a long answer, tell me more"),
        ("Explain that with a simple example", "Answer with a simple example"),
        ("Write one or two short sentences, please", "Answer in one or two short sentences"),
    ],
)
def test_a_wish_becomes_an_instruction_for_the_next_answer(said: str, told: str) -> None:
    assert restated(said) == told


@pytest.mark.parametrize(
    "said",
    [
        "Do not use lists",
        "I would like a friendly word at the end",
        "Write the solution as a short paragraph",
        "I want a little more, one whole sentence would be right",
        "Use simple words",
        "Use one more line",
        'Begin your answer with "Hello!"',
        "Say please at the end",
        "Limit yourself to short facts",
        "Give me an answer without long sentences",
    ],
)
def test_what_needs_no_restating_stays(said: str) -> None:
    assert restated(said) == said


@pytest.mark.parametrize(
    "said",
    [
        "Use a warm closing line",
        "I want a friendly sentence at the end",
        "Write a short sentence before the answer",
        "Write an opening sentence that greets me",
        "Use two words of encouragement",
        "Use two line breaks",
        "Write two sentences less",
    ],
)
def test_regression_a_wish_for_a_part_was_made_one_for_the_whole_answer(said: str) -> None:
    assert restated(said) == said
