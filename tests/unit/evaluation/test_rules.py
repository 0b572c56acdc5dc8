"""What makes a text an answer, every way of being none, and what its layout is."""

from __future__ import annotations

from itertools import product

import pytest

from rejoinder.evaluation.rules import (
    Flaw,
    Reading,
    SenseLimits,
    has_bold,
    has_list,
    new_words,
    nonsense,
    told_words,
)

QUESTION = "How do I keep my houseplants alive in winter?"
GOOD = (
    "In winter most houseplants rest, so give them less water and let the soil dry out between two "
    "waterings. Move them close to a bright window, away from the heater, and leave the fertiliser "
    "for spring."
)


def flaws(answer: str, question: str = QUESTION, finish: str = "stop") -> list[Flaw]:
    return nonsense(Reading.of(question, answer, finish), SenseLimits())


def test_prose_about_the_question_is_an_answer() -> None:
    assert flaws(GOOD) == []
    assert not has_list(GOOD)
    assert not has_bold(GOOD)


@pytest.mark.parametrize(
    "layout",
    [
        "- {0}\n- {1}",
        "* {0}\n* {1}",
        "• {0}\n• {1}",
        "– {0}\n– {1}",
        "● {0}\n● {1}",
        "→ {0}\n✅ {1}",
        "1. {0}\n2. {1}",
        "1) {0}\n2) {1}",
        "(1) {0} (2) {1}",
        "Do this: 1. {0} 2. {1}",
        "Here are two things: 1) {0} 2) {1}",
        "a) {0}\nb) {1}",
        "## Winter care\n{0} {1}",
        "Step 1: {0}\nStep 2: {1}",
        "Water: {0}\nLight: {1}",
        "{0}\n1. {1}",
    ],
)
def test_any_layout_as_a_list_is_found(layout: str) -> None:
    first, second = GOOD.split(". ", 1)
    assert has_list(layout.format(first + ".", second))


def test_bare_lines_without_markers_are_a_list_too() -> None:
    assert has_list(f"{GOOD}\n\nless water\nmore light\nno fertiliser")


@pytest.mark.parametrize(
    "text",
    [
        "The house was built in 1912. It stands near the houseplants that like winter sun.",
        "Water houseplants once every 2 weeks in winter (not more). That is all they need.",
        "Keep it at 18.5 degrees. Houseplants need 3. 5 is too much for most of them.",
        "There is one rule for winter: water less. And one more: keep them bright.",
    ],
)
def test_numbers_and_colons_inside_prose_are_no_list(text: str) -> None:
    assert not has_list(text)


@pytest.mark.parametrize("bold", ["**water**", "__water__", "<b>water</b>", "*water*"])
def test_bold_and_emphasis_are_found(bold: str) -> None:
    assert has_bold(GOOD.replace("water", bold, 1))


def test_an_answer_cut_by_its_limit_fails() -> None:
    assert Flaw.CUT in flaws(GOOD, finish="length")


def test_an_answer_that_ends_inside_a_sentence_fails() -> None:
    assert Flaw.CUT in flaws(GOOD.removesuffix("for spring.") + "for")


@pytest.mark.parametrize("end", ["and then...", "and then…", 'and "so on..."'])
def test_an_answer_that_trails_off_is_cut(end: str) -> None:
    assert flaws(f"{GOOD} Wait for spring {end}") == [Flaw.CUT]


def test_an_answer_that_ends_in_quotes_or_brackets_is_complete() -> None:
    assert flaws(GOOD + ' Gardeners call it "winter rest."') == []
    assert flaws(GOOD + " (Succulents need even less.)") == []


def test_an_empty_answer_is_only_empty() -> None:
    assert flaws(" \n") == [Flaw.EMPTY]


def test_saying_a_sentence_twice_is_repetitive() -> None:
    sentence = "Houseplants need less water in winter."
    assert Flaw.REPETITIVE in flaws(f"{sentence} {GOOD} {sentence}")


def test_a_loop_of_phrases_is_repetitive() -> None:
    loop = "Give houseplants some light and some water and some light and some water in winter"
    assert Flaw.REPETITIVE in flaws(f"{loop} and some light and some water and some air.")


def test_a_word_three_times_in_a_row_is_a_stutter() -> None:
    assert Flaw.REPETITIVE in flaws(f"{GOOD} It is a delicate, delicate, delicate craft.")
    assert Flaw.REPETITIVE not in flaws(f"{GOOD} It is a very, very delicate craft.")


def test_who_does_not_know_gives_no_answer() -> None:
    assert Flaw.OFF_TOPIC in flaws(f"{GOOD} I do not know how it works, but experts do.")


@pytest.mark.parametrize(
    "echo",
    [
        f"{QUESTION} Keeping your houseplants alive in winter is how you keep houseplants alive.",
        "You asked how you keep your houseplants alive in winter, and that is really good to do.",
    ],
)
def test_repeating_the_question_is_no_answer(echo: str) -> None:
    assert Flaw.ECHO in flaws(echo)


def test_courtesy_adds_nothing_and_numbers_do() -> None:
    question = "How many apples does Mia have left?"
    assert new_words(question, "Hello there, thank you! Mia has apples left. Good luck.") == 0
    assert new_words(question, "Mia has 9 apples left.") == 1


def test_words_that_fit_any_question_tell_nothing() -> None:
    question = "How do I wash a car?"
    assert told_words(question, "To wash a car, you need patience, care and the right tools.") == 0
    assert told_words(question, "To wash a car, you need a bucket, soap and a soft sponge.") == 4
    assert told_words("How do I get there?", "Take care, and cars of friends.") == 2, "as written"


@pytest.mark.parametrize("noise", ["<|im_start|>user", "```python\nx = 1\n```", "| a | --- |"])
def test_markup_and_control_tokens_are_not_ordinary_text(noise: str) -> None:
    assert Flaw.BROKEN in flaws(f"{GOOD} {noise}")


def test_symbols_in_place_of_words_are_not_ordinary_text() -> None:
    assert Flaw.BROKEN in flaws("houseplants winter " + "#$%& @@@ ~~~~ ^^^^ " * 12 + ".")


ON_TOPIC = {
    "How can I fall asleep faster at night?": (
        "Go to bed at the same hour each evening and keep your bedroom cool and dark. Put the "
        "screen away early, because bright light tells the body that it is still day."
    ),
    "Why did the Titanic sink?": (
        "The ship hit an iceberg on its first voyage in April 1912. The ice tore open several "
        "compartments below the waterline, and they filled one after another until the bow went "
        "down."
    ),
    "What is a budget and how do I make one?": (
        "It is a plan for your money. Write down what you earn each month, take away what you must "
        "spend on rent and food, and decide what to do with the remainder before it is gone."
    ),
    "How do I get rid of hiccups?": (
        "Hold your breath for ten seconds, or drink a glass of cold water in small sips. Both calm "
        "the diaphragm, which is the muscle that twitches."
    ),
    "How do I train a puppy to sit?": (
        "Hold a treat above the nose of your dog and move it back slowly. Most dogs sit down to "
        "follow it with their eyes, and then they get the treat at once."
    ),
    "Why are forests important?": (
        "Trees clean the air, hold the soil in place and give a home to most of the animals on "
        "land. They also store a great deal of carbon."
    ),
}


def test_answers_to_their_own_question_are_on_topic_also_in_other_words() -> None:
    for question, answer in ON_TOPIC.items():
        assert flaws(answer, question) == [], question


def test_answers_to_another_question_are_off_topic() -> None:
    for (question, own), (other, answer) in product(ON_TOPIC.items(), repeat=2):
        if question != other:
            assert Flaw.OFF_TOPIC in flaws(answer, question), (question, answer)
            assert Flaw.OFF_TOPIC not in flaws(own, question)


def test_polite_filler_is_off_topic() -> None:
    filler = (
        "That is a great question and I am always happy to help you with anything you need. There "
        "are many ways to do it, and everybody should find what is best for them."
    )
    for question in ON_TOPIC:
        assert Flaw.OFF_TOPIC in flaws(filler, question)


ECHO = "You ask how to keep your houseplants alive in winter."


@pytest.mark.parametrize(
    ("answer", "flaw"),
    [
        (
            (
                f"I am sorry, but I cannot answer this. {ECHO} It is a question I am unable to "
                "say anything about, so please ask somebody who knows the subject."
            ),
            Flaw.OFF_TOPIC,
        ),
        (
            (
                f"{ECHO} As an AI language model I have no hands and never watered one of them, so "
                "the best that is left to do is to look in a book."
            ),
            Flaw.OFF_TOPIC,
        ),
        (
            (
                f"{ECHO} Table water lamp stone cloud paper engine window river spoon garden "
                "letter carpet mountain bottle basket ladder candle pencil."
            ),
            Flaw.BROKEN,
        ),
        (
            f"{ECHO} Water, water is good, water is nice." + " Good water is nice." * 8,
            Flaw.REPETITIVE,
        ),
        (f"{GOOD}\nuser\nAnd in summer?", Flaw.BROKEN),
        (
            (
                f"{ECHO} Die meisten Zimmerpflanzen ruhen im Winter, deshalb brauchen sie weniger "
                "Wasser und einen hellen Platz am Fenster ohne trockene Heizungsluft."
            ),
            Flaw.BROKEN,
        ),
    ],
    ids=["refusal", "as an AI", "words in a row", "few words", "speakers", "another language"],
)
def test_what_only_looks_like_an_answer_fails(answer: str, flaw: Flaw) -> None:
    assert flaw in flaws(answer)


def test_a_sentence_a_line_is_a_list() -> None:
    lines = "\n".join(sentence + "." for sentence in GOOD[:-1].replace(", ", ". ").split(". "))
    assert has_list(lines)


def test_all_reasons_are_reported_at_once() -> None:
    found = flaws("1. **Eat**\n2. **Drink**\n3. **Drive", finish="length")
    assert found == [Flaw.BROKEN, Flaw.CUT, Flaw.OFF_TOPIC]


def test_limits_move_the_lines() -> None:
    reading = Reading.of(QUESTION, "Water houseplants less in winter.", "stop")
    assert nonsense(reading, SenseLimits()) == [Flaw.ECHO]
    assert nonsense(reading, SenseLimits(min_new_words=1)) == []
