"""Reading votes on hints."""

from __future__ import annotations

import pytest

from rejoinder.judge.hints.parsing import HintVote, parse_hint_beside_score, parse_hint_vote

HINT = "Keep it short."


@pytest.mark.parametrize(
    "text",
    [
        '{"accept": true, "hint": "Keep it short."}',
        '```json\n{"accept": true, "hint": "Keep it short."}\n```',
        'Sure! {"hint": "Keep it short.", "accept": "yes"} Done.',
        '<think>{"accept": false, "hint": ""}</think>{"accept": true, "hint": "Keep it short."}',
        '{"accept": false, "hint": ""} no, rather {"accept": true, "hint": "Keep it short."}',
    ],
)
def test_the_last_object_after_any_thinking_is_the_vote(text: str) -> None:
    assert parse_hint_vote(text, "stop") == HintVote(True, HINT)


@pytest.mark.parametrize(
    "text", ['{"accept": false, "hint": "Keep it short."}', '{"accept": "no"}', '{"accept":false}']
)
def test_a_rejection_has_no_hint(text: str) -> None:
    assert parse_hint_vote(text, "stop") == HintVote(False)


@pytest.mark.parametrize(
    ("text", "finish_reason", "code"),
    [
        ('{"accept": true, "hint": "Keep it', "length", "cut_off"),
        ("<think>the user wants", "stop", "cut_off"),
        ("Keep it short.", "stop", "unparsable"),
        ('{"accept": 1, "hint": "Keep it short."}', "stop", "unparsable"),
        ('{"hint": "Keep it short."}', "stop", "unparsable"),
        ('{"accept": true, "hint": " "}', "stop", "no_hint"),
        ('{"accept": true, "hint": ["Keep it short."]}', "stop", "no_hint"),
        ('{"accept": true, "hint": "............"}', "stop", "no_hint"),
        ('{"accept": true, "hint": "<one to three sentences, or empty>"}', "stop", "no_hint"),
        ("", None, "unparsable"),
        (f'{{"accept": true, "hint": "Keep it short.", "n": {"1" * 5000}}}', "stop", "unparsable"),
    ],
)
def test_anything_else_is_a_failed_vote_with_a_code(
    text: str, finish_reason: str | None, code: str
) -> None:
    vote = parse_hint_vote(text, finish_reason)
    assert vote.accepts is None
    assert vote.text.partition(":")[0] == code


@pytest.mark.parametrize("hint", ["", "...", "<or empty>", "One to three sentences, or empty."])
def test_beside_a_score_a_hint_that_says_nothing_is_none(hint: str) -> None:
    text = f'{{"reason": "so", "score": -1, "hint": "{hint}"}}'
    assert parse_hint_beside_score(text, "stop") == HintVote(False)
