"""Words, sentences and stems."""

from __future__ import annotations

import pytest

from rejoinder.evaluation.text import (
    content_words,
    related_stems,
    sentences_of,
    stem,
    words_of,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("running", "run"),
        ("runs", "run"),
        ("berries", "berry"),
        ("tomatoes", "tomato"),
        ("dishes", "dish"),
        ("baked", "bake"),
        ("baking", "bake"),
        ("healthy", "health"),
        ("healthier", "health"),
        ("children's", "child"),
        ("taught", "teach"),
        ("vaccines", "vaccine"),
        ("cooking", "cook"),
    ],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("party", "part"), ("bus", "bu"), ("grass", "gras"), ("sing", "s"), ("bed", "b")],
)
def test_different_words_keep_different_stems(one: str, other: str) -> None:
    assert stem(one) != stem(other)


def test_words_are_lower_case_with_inner_apostrophes_and_hyphens() -> None:
    assert words_of("Don’t over-think it, *please*!") == ["don't", "over-think", "it", "please"]


def test_sentences_end_at_punctuation_and_at_line_ends() -> None:
    assert sentences_of('He said "No." Then he left!\nThe end') == [
        'He said "No."',
        "Then he left!",
        "The end",
    ]


def test_function_words_and_advice_words_carry_no_topic() -> None:
    assert content_words("What are some good ways to store a long-haired cat's toys?") == [
        "haired",
        "cat's",
        "toys",
    ]


def test_the_table_of_related_words_relates_a_word_to_what_answers_say() -> None:
    assert stem("bicycle") in related_stems()[stem("bike")]
    assert stem("breathing") in related_stems()[stem("calm")]
