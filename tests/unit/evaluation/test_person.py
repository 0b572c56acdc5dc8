"""The scripted person: natural words, never the same twice in a row."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from rejoinder.evaluation.person import (
    GOODBYE,
    NEXT,
    PLEASED,
    SEVEREST_FIRST,
    Person,
    load_voice,
    parse_voice,
)
from rejoinder.evaluation.questions import Question, Split, load_questions
from rejoinder.evaluation.rules import Flaw

VOICE = load_voice("plain_prose")
QUESTION = Question("How do I grow tomatoes on a balcony?", "gardening")
KINDS = [*(flaw for flaw in Flaw if flaw is not Flaw.EMPTY), None]


def reactions(kind: Flaw | None, count: int, seed: int = 7) -> list[str]:
    person = Person(VOICE, seed)
    return [person.react(QUESTION, [kind] if kind else []) for _ in range(count)]


def test_the_voice_has_words_for_every_flaw_and_for_pleasure() -> None:
    assert set(VOICE) == {*Flaw, PLEASED, NEXT, GOODBYE}
    assert set(SEVEREST_FIRST) == set(Flaw)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_reaction_has_at_least_sixty_phrasings(kind: Flaw | None) -> None:
    assert len(set(reactions(kind, 1000))) >= 60


@pytest.mark.parametrize("kind", KINDS)
def test_no_reaction_comes_twice_in_a_row(kind: Flaw | None) -> None:
    said = reactions(kind, 500)
    assert all(one != other for one, other in pairwise(said))


def test_the_same_seed_gives_the_same_words_and_another_seed_others() -> None:
    assert reactions(Flaw.LIST, 20, seed=1) == reactions(Flaw.LIST, 20, seed=1)
    assert reactions(Flaw.LIST, 20, seed=1) != reactions(Flaw.LIST, 20, seed=2)


def test_reactions_hold_no_placeholders_and_name_the_topic_now_and_then() -> None:
    for kind in KINDS:
        said = reactions(kind, 300)
        assert not any("{" in text or "}" in text for text in said)
        assert any("gardening" in text or "tomatoes" in text for text in said)


def test_no_reaction_says_the_name_of_a_rule_or_a_score() -> None:
    names = {flaw.value for flaw in Flaw if "_" in flaw.value} | {"+1", "-1", "score", "flaw"}
    for kind in KINDS:
        assert not any(name in text for text in reactions(kind, 300) for name in names)


def test_the_severest_flaw_is_named_first() -> None:
    voice = parse_voice(
        '[list]\nopeners = []\ncores = ["A list!"]\nclosers = []\n'
        '[too_long]\nopeners = []\ncores = ["Too long."]\nclosers = []\n'
    )
    person = Person(voice, 3)
    said = {person.react(QUESTION, [Flaw.TOO_LONG, Flaw.LIST]) for _ in range(100)}
    assert said == {"A list!", "A list! Too long."}


def test_the_next_question_stands_in_the_same_message() -> None:
    person = Person(VOICE, 5)
    other = "What is gravity? Keep it short."
    for _ in range(20):
        assert person.ask_next("Lovely.", other).startswith("Lovely. ")
        assert person.ask_next("Lovely.", other).endswith(other)


def test_a_goodbye_keeps_the_reaction() -> None:
    person = Person(VOICE, 5)
    texts = {person.say_goodbye("That was clear.", QUESTION) for _ in range(50)}
    assert all(text.startswith("That was clear.") for text in texts)
    assert len(texts) > 3


def test_any_question_can_be_reacted_to() -> None:
    person = Person(VOICE, 11)
    rng = random.Random(0)
    for question in load_questions(Split.TRAINING):
        assert person.react(question, rng.sample(list(Flaw), rng.randrange(4)))


def test_a_phrasebook_is_plain_toml() -> None:
    voice = parse_voice('[pleased]\nopeners = []\ncores = ["Fine {topic}."]\nclosers = []\n')
    assert Person(voice, 0).react(QUESTION, []) == "Fine gardening."
