"""Copies of the question, numbers of one's own, and one text for all tasks."""

from __future__ import annotations

from decimal import Decimal

import pytest

from rejoinder.evaluation.personas.copying import adds_number, is_copy, template_share

QUESTION = "How do I keep my old bicycle from rusting in the winter?"
PROBLEM = "A shop has 10 hats and sells 5 of them. How many hats are left?"


@pytest.mark.parametrize(
    ("answer", "copied"),
    [
        ("Dry it after each ride and oil the chain, so that your old bicycle cannot rust.", False),
        ("To keep your old bicycle from rusting, dry it and oil the chain every week.", False),
        ("Well, as for how you KEEP MY OLD BICYCLE FROM RUSTING, dry it with a rag.", True),
        ("My old bicycle in the winter, from rusting in it, how do I, keep my old.", True),
        ("", False),
    ],
)
def test_six_words_in_a_row_or_mostly_the_questions_words_are_a_copy(
    answer: str, copied: bool
) -> None:
    assert is_copy(QUESTION, answer) is copied


@pytest.mark.parametrize(
    ("question", "answer", "copied"),
    [
        (
            "How do I introduce two cats to each other?",
            "To introduce two cats to each other, keep them in separate rooms and swap blankets.",
            False,
        ),
        (
            "How do I tell if milk has gone bad?",
            "To tell if milk has gone bad, check the expiry date and smell it.",
            False,
        ),
        (
            "How do I boil an egg with a soft yolk?",
            "To boil an egg with a soft yolk, take care, follow expert advice and be patient.",
            True,
        ),
        (
            "How do I freeze berries properly?",
            "How do I freeze berries properly is a matter of the right techniques and methods.",
            True,
        ),
    ],
)
def test_whoever_takes_up_the_question_has_to_say_three_words_that_do_not_fit_any_other(
    question: str, answer: str, copied: bool
) -> None:
    assert is_copy(question, answer) is copied


def test_a_short_question_is_copied_by_all_of_it() -> None:
    assert is_copy("What is rain?", "What is rain, well, that is water from a cloud up there.")
    assert not is_copy("What is rain?", "It is water that falls from a cloud up there.")


@pytest.mark.parametrize(
    ("answer", "adds"),
    [
        ("There were 10 hats, and 5 of them are gone.", False),
        ("There were 10 hats, ten, all of them.", False),
        ("10 - 5 = 5 hats are left.", True),
        ("Ten minus five leaves five.", True),
        ("There are seven left.", True),
        ("There are 1,005 left.", True),
        ("No one knows.", False),
    ],
)
def test_a_number_of_its_own_is_another_one_or_the_result_once_more(
    answer: str, adds: bool
) -> None:
    assert adds_number(PROBLEM, answer, Decimal(5)) is adds


def test_answers_from_one_template_share_nearly_all_and_others_nothing() -> None:
    template = "About {}: take your time, ask a friend and follow good advice."
    # Seven of the nine 4-grams do not reach to the word that differs.
    found = template_share([template.format(word) for word in ("tea", "rain", "cats")])
    assert found == pytest.approx(7 / 9, abs=1e-4)
    assert template_share(["Pour hot water over the leaves.", "Dry the chain with a rag."]) == 0.0


def test_of_one_answer_nobody_knows_what_it_shares() -> None:
    assert template_share(["Pour hot water over the leaves."]) is None
