"""The scripted person: natural words, never the same twice in a row."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from rejoinder.evaluation.personas.person import PLEASED, Person, Phrases
from rejoinder.evaluation.personas.persona import load_persona
from rejoinder.evaluation.questions import Question, Split, load_questions

PERSONA = load_persona("no-lists")
QUESTION = Question("How do I grow tomatoes on a balcony?", "gardening")
KINDS = (*PERSONA.order, PLEASED)


def reactions(kind: str, count: int, seed: int = 7) -> list[str]:
    person = PERSONA.speak(seed)
    return [person.react(QUESTION, [] if kind == PLEASED else [kind]) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_reaction_comes_twice_in_a_row(kind: str) -> None:
    said = reactions(kind, 500)
    assert all(one != other for one, other in pairwise(said))


def test_the_same_seed_gives_the_same_words_and_another_seed_others() -> None:
    assert reactions("list", 20, seed=1) == reactions("list", 20, seed=1)
    assert reactions("list", 20, seed=1) != reactions("list", 20, seed=2)


def test_placeholders_are_filled_and_the_topic_is_named_now_and_then() -> None:
    said = [text for kind in KINDS for text in reactions(kind, 300)]
    assert not any("{" in text or "}" in text for text in said)
    assert any("gardening" in text for text in said)
    assert any("tomatoes" in text for text in said)


def test_what_bothers_most_is_named_first() -> None:
    voice = {"list": Phrases((), ("A list!",), ()), "long": Phrases((), ("Too long.",), ())}
    person = Person(voice, 3, ("list", "long"))
    said = {person.react(QUESTION, ["long", "list"]) for _ in range(100)}
    assert said == {"A list!", "A list! Too long."}


def test_a_goodbye_keeps_the_reaction() -> None:
    person = PERSONA.speak(5)
    texts = {person.say_goodbye("That was clear.", QUESTION) for _ in range(50)}
    assert all(text.startswith("That was clear.") for text in texts)
    assert len(texts) > 3


def test_any_question_can_be_reacted_to() -> None:
    person = PERSONA.speak(11)
    rng = random.Random(0)
    for question in load_questions(Split.TRAINING):
        assert person.react(question, rng.sample(PERSONA.order, rng.randrange(4)))
