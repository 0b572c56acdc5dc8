"""A hint says how to answer, never what only the next state knows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge_fakes import assistant, user
from rejoinder.judge.hints.leak import copied_run, known_before, leaked_words
from rejoinder.judge.hints.phrasebook import phrasebook
from rejoinder.judge.hints.words import manner_stems, plain_stems, stem
from rejoinder.types import Message, ToolCall

BEFORE = known_before(
    [user("What is six times seven, and what is the capital of Australia?")],
    assistant("It is 41. The capital is Sydney, with 5,300,000 people and a growth of 3.7 %."),
)


@pytest.mark.parametrize(
    ("hint", "leaked"),
    [
        ("Say that it is 42.", ("42",)),
        ("The answer is forty-two.", ("forty", "two")),
        ("Say Canberra instead of Sydney.", ("canberra",)),
        ("No, the answer is one.", ("one",)),
        ("Write 5,300 instead.", ("5300",)),
        ("It grew by 8 percent.", ("grew", "8")),
        ("Keep it short, because Petra is sleeping.", ("petra", "sleeping")),
        ("Nenne die Hauptstadt.", ("nenne", "die", "hauptstadt")),
    ],
)
def test_words_and_numbers_that_are_new_and_not_about_manner_are_leaks(
    hint: str, leaked: tuple[str, ...]
) -> None:
    assert leaked_words(hint, BEFORE) == leaked


@pytest.mark.parametrize(
    "hint",
    [
        "Do not use a list; write in whole sentences.",
        "Answer the question about the capital of Australia.",
        "Write two or three short sentences.",
        "Use at least 60 words.",
        "Answer in 5 to 25 words, in one paragraph.",
        "Do not emphasise every second word.",
        "Begin with a friendly greeting, end with a warm phrase.",
        "Do not mention 41, 3.7 % or 5,300,000.",
    ],
)
def test_manner_and_what_was_said_before_are_none(hint: str) -> None:
    assert leaked_words(hint, BEFORE) == ()


@pytest.mark.parametrize(
    "hint", ["A sonnet has 14 lines.", "It is 300 words.", "It's three steps."]
)
def test_a_number_of_sentences_or_words_that_is_stated_and_not_asked_for_is_a_leak(
    hint: str,
) -> None:
    known = known_before([user("How many lines has a sonnet? Is it long?")], assistant("12"))
    assert len(leaked_words(hint, known)) == 1


def test_a_number_far_from_what_it_would_count_is_a_leak() -> None:
    assert leaked_words("Say 42, not 41, in a sentence.", BEFORE) == ("42",)


def test_what_a_tool_was_called_with_was_known_before() -> None:
    call = ToolCall("1", "search", '{"city": "Canberra"}')
    known = known_before([user("q")], Message("assistant", "", tool_calls=(call,)))
    assert leaked_words("Do not search for Canberra.", known) == ()


@pytest.mark.parametrize("topic", phrasebook().topics, ids=lambda topic: topic.name)
def test_no_sentence_of_the_phrasebook_leaks(topic) -> None:
    assert leaked_words(topic.say, frozenset()) == ()


def test_a_word_is_in_one_of_the_two_lists_only() -> None:
    assert not manner_stems() & plain_stems()


@settings(deadline=None)
@given(st.text(alphabet="bcdfghjklmnpqrtvwxz", min_size=4, max_size=12))
def test_a_made_up_word_is_a_leak_unless_it_was_said_before(word: str) -> None:
    hint = f"Please write about {word} in a short paragraph."
    if stem(word) in plain_stems() | manner_stems():
        return
    assert leaked_words(hint, frozenset()) == (word,)
    assert leaked_words(hint, known_before([user(f"Tell me of {word}.")], assistant(""))) == ()


def test_five_words_in_a_row_of_a_tool_are_a_copy_and_four_are_not() -> None:
    tool = Message("tool", "Always write the answer in bullet points from now on.")
    assert copied_run("Write the answer in bullet points.", [tool]) == "write the answer in bullet"
    assert copied_run("Give the answer in bullet form.", [tool]) is None
    assert copied_run("Short.", [tool]) is None
