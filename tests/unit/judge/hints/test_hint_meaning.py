"""A hint of the extractive judge says what the person meant: not the reverse, no fact, no stump."""

from __future__ import annotations

import pytest

from judge_fakes import assistant, user
from rejoinder.evaluation.personas.person import PLEASED
from rejoinder.evaluation.personas.persona import load_persona, shipped_personas
from rejoinder.judge.hints.base import HintFate
from rejoinder.judge.hints.extractive import ExtractiveHintJudge
from rejoinder.judge.hints.phrasebook import phrasebook

CONTEXT = [
    user("Is Sydney the capital of Australia?"),
    assistant("Yes."),
    user("Is a whale a fish, and what is the coast like?"),
]
ANSWER = assistant("A whale is a fish. The coast is warm.")


def hint_of(said: str) -> str:
    hinting = ExtractiveHintJudge().read(CONTEXT, ANSWER, [user(said)])
    return hinting.hints[0] if hinting.hints else ""


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Please say it in a few words.", "Answer in a few words."),
        (
            "I got lost in that sentence. Please say it in a few words.",
            "Answer in a few words.",
        ),
        ("One sentence is right, but please keep it brief.", "Keep it brief."),
        (
            "Your answer breaks off. Please write a long answer that also has an end.",
            (
                "Give a complete answer that comes to its end. "
                "Write a long answer that also has an end."
            ),
        ),
        ("You are shouting at me.", "Write in a calm, neutral tone."),
        ("A few words are too little.", "Explain a little more, in several whole sentences."),
        ("Long answers are tiring, too long for me.", "Answer briefly."),
    ],
)
def test_regression_a_hint_does_not_say_the_opposite(said: str, hint: str) -> None:
    assert hint_of(said) == hint


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("That was too short. Please keep it brief.", "Keep it brief."),
        ("Why so long? Please explain it in more detail.", "Answer in more detail."),
        ("Far too long. Far too short.", ""),
        (
            "Is that all? Please answer with a full sentence, just a short one.",
            "Answer in a full sentence, just a short one.",
        ),
    ],
)
def test_a_canned_sentence_yields_where_it_would_disagree(said: str, hint: str) -> None:
    assert hint_of(said) == hint


def test_regression_a_wish_is_not_quoted_as_a_fault() -> None:
    assert hint_of("One short sentence would have been enough.") == "Answer in one short sentence."


def test_what_a_topic_opposes_is_a_topic() -> None:
    names = {topic.name for topic in phrasebook().topics}
    assert {topic.opposes for topic in phrasebook().topics} - {""} <= names


@pytest.mark.parametrize(
    "said",
    [
        "Lists are not bad.",
        "A list isn't wrong.",
        "I can't read this without bullet points.",
        "It's too bad there is no list.",
        "I hate that there are no emojis.",
        "Without headings it is hard to read.",
        "Without headings, it is hard to read.",
        "Nothing wrong with lists.",
        "I don't mind tables.",
        "Emojis don't hurt.",
        "Why did you drop the bullets?",
        "I would hate to lose the emojis.",
        "Why don't you use headings?",
        "There aren't enough headings.",
        "A table is what I need, not this.",
        "Please, no explanation.",
        "Please give only the result.",
    ],
)
def test_regression_a_sentence_that_may_mean_the_reverse_gives_no_hint(said: str) -> None:
    hinting = ExtractiveHintJudge().read(CONTEXT, ANSWER, [user(said)])
    assert hinting.why in (HintFate.NOTHING_SAID, HintFate.BEYOND_RULES)


@pytest.mark.parametrize(
    "said",
    [
        "I didn't ask you to drop the headings.",
        "Short answers are bad.",
        "I'm not a fan of short answers.",
        "Enough with the plain text.",
    ],
)
def test_regression_an_objection_to_a_form_is_no_wish_for_it(said: str) -> None:
    assert hint_of(said) == ""


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("That is wrong, please say it is not the capital.", ""),
        ("Please say yes in one short sentence.", ""),
        ("Wrong. Please always answer no, in one short sentence.", "In one short sentence."),
        (
            "No, please say that a whale is not a fish, in one short sentence.",
            "In one short sentence.",
        ),
        ("Please always say that the coast is cold and dry.", ""),
        ("Please always say the coast is cold and dry.", ""),
        ("Please say the answer is cold, in short words.", "In short words."),
        ("Please start with a plain no.", ""),
        ('Please say "no" in one short sentence.', ""),
        ("The coast is not cold.", ""),
    ],
)
def test_regression_a_fact_in_common_words_is_no_hint(said: str, hint: str) -> None:
    assert hint_of(said) == hint


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Say that in a single short sentence.", "Answer in a single short sentence."),
        ("Please write it so that it is short.", "Write it so that it is short."),
        ("Please write an answer that is complete.", "Write an answer that is complete."),
        ("Make sure your answer is complete.", "Make sure your answer is complete."),
    ],
)
def test_a_clause_about_the_answers_form_may_stay(said: str, hint: str) -> None:
    assert hint_of(said) == hint


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (
            "Too short to understand, please write a short but complete sentence.",
            "Answer in a short but complete sentence.",
        ),
        (
            "I need a little more, one whole sentence would be right.",
            "I want a little more, one whole sentence would be right.",
        ),
        ("Please be short but friendly.", "Be short but friendly."),
        ("Make it short but don't use a list.", "Make it short. Don't use a list."),
        ("Please write it in a short.", ""),
        ("Please end your sentences with.", ""),
    ],
)
def test_regression_a_hint_is_whole(said: str, hint: str) -> None:
    assert hint_of(said) == hint


@pytest.mark.parametrize(
    "said",
    [
        "Please describe the coast in one short sentence.",
        "Please describe the cold coast in one short sentence.",
        "Give me five examples.",
        "Tell me a joke in one sentence.",
        "Summarise the coast in one line. Use simple words.",
    ],
)
def test_regression_a_task_on_a_thing_is_new_and_ends_the_reading(said: str) -> None:
    assert hint_of(said) == ""


def test_a_directive_before_a_new_task_counts() -> None:
    assert hint_of("Use simple words. Now translate the whale.") == "Use simple words."


@pytest.mark.parametrize("name", shipped_personas())
def test_regression_kind_words_of_a_persona_were_quoted_as_a_complaint(name: str) -> None:
    """ "Hello to you too." gave "Avoid that", and took the praise beside it away."""
    kind = load_persona(name).voice[PLEASED]
    said = [one.format(word="tulips", topic="tulips") for one in kind.cores]
    wrong = {one: hint for one in (*kind.openers, *said, *kind.closers) if (hint := hint_of(one))}
    assert wrong == {}


@pytest.mark.parametrize(
    "said", ["Hello again!", "Hi again. How deep do I plant tulips?", "Good day to you, too!"]
)
def test_regression_a_greeting_was_quoted_as_a_complaint(said: str) -> None:
    assert hint_of(said) == ""
