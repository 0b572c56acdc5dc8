"""What counts as a vote in the output of an LLM judge."""

from __future__ import annotations

import pytest

from rejoinder.judge.parsing import parse_vote
from rejoinder.judge.voting import failure_code


def score(text: str, finish_reason: str | None = "stop") -> int | None:
    return parse_vote(text, finish_reason).score


def code(text: str, finish_reason: str | None = "stop") -> str:
    vote = parse_vote(text, finish_reason)
    assert vote.score is None
    return failure_code(vote)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"reason": "pleased", "score": 1}', 1),
        ('{"score": -1}', -1),
        ('{"score": 0, "reason": "noise"}', 0),
        ('Here you are:\n```json\n{"score": "+1"}\n```', 1),
        ('{"score": -1.0}', -1),
        ("The person corrects it, so \\boxed{-1}.", -1),
        ("\\boxed{ +1 }", 1),
        ("\\boxed{\\text{0}}", 0),
        ("\\boxed{−1}", -1),  # a typographic minus
        ('{"score": 1} … no: {"score": -1}', -1),
        ('{"note": {"score": 1}} {"score": 0}', 0),
        ('{broken {"score": 1}', 1),
        ('\\boxed{1} and then {"score": -1}', -1),
    ],
)
def test_the_last_well_formed_verdict_counts(text: str, expected: int) -> None:
    assert score(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I think it was fine.",
        '{"score": 2}',
        '{"score": true}',
        '{"score": 0.5}',
        '{"score": null}',
        '{"score": [1]}',
        '{"score": "1 or -1"}',
        "\\boxed{good}",
        "score: 1",
        '{"score": 1',
        "[1, -1]",
        '{"verdict": {"score": 1}}',
    ],
)
def test_anything_else_is_no_vote_and_never_a_neutral_one(text: str) -> None:
    assert code(text) == "unparsable"


def test_regression_a_judge_cut_off_while_thinking_has_not_voted() -> None:
    quoted = "<think> I must answer \\boxed{1} or \\boxed{-1}; the user"
    assert code(quoted) == "cut_off"
    assert code(quoted, "length") == "cut_off"


def test_an_output_that_reached_max_tokens_is_no_vote_even_with_a_verdict_in_it() -> None:
    assert code('{"score": 1}', "length") == "cut_off"


def test_only_what_follows_the_thinking_is_read() -> None:
    assert score('<think>maybe {"score": 1}</think>{"score": -1}') == -1
    assert code('<think>maybe {"score": 1}</think>I cannot say') == "unparsable"


def test_a_template_that_opens_the_thinking_itself_leaves_only_its_end() -> None:
    assert score("it could be \\boxed{1}\n</think>\n\\boxed{-1}") == -1


def test_a_thought_reopened_and_not_closed_is_no_vote() -> None:
    assert code('<think>a</think>{"score": 1}<think>wait') == "cut_off"


def test_the_rationale_is_kept_and_bounded() -> None:
    vote = parse_vote('{"reason": "' + "x" * 5000 + '", "score": 1}', "stop")
    assert vote.score == 1
    assert 0 < len(vote.reason) <= 500


def test_deeply_nested_output_is_no_vote_and_no_crash() -> None:
    assert code('{"a":' * 50_000) == "unparsable"


def test_regression_a_number_of_thousands_of_digits_is_no_vote_and_no_crash() -> None:
    text = f'{{"score": 1, "n": {"1" * 5000}}}'
    assert code(text) == "unparsable"
    assert score(f'{text} {{"score": -1}}') == -1
