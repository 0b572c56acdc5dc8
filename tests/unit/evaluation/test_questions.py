"""The question sets: large enough, and nothing measured with was trained on."""

from __future__ import annotations

import re

from rejoinder.evaluation.questions import Question, Split, load_questions
from rejoinder.evaluation.text import content_stems, words_of

TRAINING = load_questions(Split.TRAINING)
HELDOUT = load_questions(Split.HELDOUT)
MAX_OVERLAP = 0.75
"""Jaccard overlap of content stems above which two questions ask the same thing."""


STEMS = {question: content_stems(question.text) for question in (*TRAINING, *HELDOUT)}


def overlap(one: Question, other: Question) -> float:
    return len(STEMS[one] & STEMS[other]) / len(STEMS[one] | STEMS[other])


def plain(question: Question) -> str:
    return " ".join(words_of(question.text))


def test_there_are_enough_questions_to_train_and_to_measure() -> None:
    assert len(TRAINING) >= 300
    assert len(HELDOUT) >= 220


def test_no_question_comes_twice() -> None:
    questions = [plain(question) for question in (*TRAINING, *HELDOUT)]
    assert len(questions) == len(set(questions))


def test_no_heldout_question_is_a_near_duplicate_of_a_training_question() -> None:
    near = [
        (one.text, other.text)
        for one in HELDOUT
        for other in TRAINING
        if min(len(STEMS[one]), len(STEMS[other])) > 1 and overlap(one, other) > MAX_OVERLAP
    ]
    assert near == []


def test_a_heldout_question_with_one_content_word_shares_it_with_no_such_training_question() -> (
    None
):
    single = [STEMS[question] for question in TRAINING if len(STEMS[question]) == 1]
    assert not [question for question in HELDOUT if STEMS[question] in single]


def test_every_question_is_one_sentence_that_asks_something() -> None:
    for question in (*TRAINING, *HELDOUT):
        assert re.fullmatch(r"[A-Z][^?\n]*\?", question.text), question
        assert content_stems(question.text), (
            f"the topic check has nothing to hold on to: {question}"
        )


def test_both_sets_cover_the_same_fields_of_life() -> None:
    fields = {question.topic for question in TRAINING}
    assert fields == {question.topic for question in HELDOUT}
    assert len(fields) >= 20
