"""The strict rule: what passes, and every way of not passing."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from rejoinder.evaluation.rules import DEFAULT_LIMITS, Assessment, Flaw, assess, new_words

QUESTION = "How do I keep my houseplants alive in winter?"
GOOD = (
    "In winter most houseplants rest, so give them less water and let the soil dry out between two "
    "waterings. Move them close to a bright window, away from the heater, and leave the fertiliser "
    "for spring."
)


def rule(answer: str, question: str = QUESTION, finish: str = "stop") -> Assessment:
    return assess(question, answer, finish)


def test_plain_prose_about_the_question_passes() -> None:
    verdict = rule(GOOD)
    assert verdict.passes
    assert verdict.flaws == ()
    assert verdict.words == 36


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
def test_any_layout_as_a_list_fails(layout: str) -> None:
    first, second = GOOD.split(". ", 1)
    verdict = rule(layout.format(first + ".", second))
    assert Flaw.LIST in verdict.flaws


def test_bare_lines_without_markers_are_a_list_too() -> None:
    assert Flaw.LIST in rule(f"{GOOD}\n\nless water\nmore light\nno fertiliser").flaws


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
    assert Flaw.LIST not in rule(text).flaws


@pytest.mark.parametrize("bold", ["**water**", "__water__", "<b>water</b>", "*water*"])
def test_bold_and_emphasis_fail(bold: str) -> None:
    assert Flaw.BOLD in rule(GOOD.replace("water", bold, 1)).flaws


def test_an_answer_must_have_20_to_120_words() -> None:
    assert Flaw.TOO_SHORT in rule("Water houseplants less in winter.").flaws
    words = " ".join(f"leaf{number}" for number in range(121))
    assert Flaw.TOO_LONG in rule(f"Houseplants {words}.").flaws


def test_an_answer_cut_by_its_limit_fails() -> None:
    assert Flaw.CUT in rule(GOOD, finish="length").flaws


def test_an_answer_that_ends_inside_a_sentence_fails() -> None:
    assert Flaw.CUT in rule(GOOD.removesuffix("for spring.") + "for").flaws


@pytest.mark.parametrize("end", ["and then...", "and then…", 'and "so on..."'])
def test_an_answer_that_trails_off_is_cut(end: str) -> None:
    assert rule(f"{GOOD} Wait for spring {end}").flaws == (Flaw.CUT,)


def test_an_answer_that_ends_in_quotes_or_brackets_is_complete() -> None:
    assert rule(GOOD + ' Gardeners call it "winter rest."').passes
    assert rule(GOOD + " (Succulents need even less.)").passes


def test_an_empty_answer_is_only_empty() -> None:
    assert rule(" \n").flaws == (Flaw.EMPTY,)


def test_saying_a_sentence_twice_is_repetitive() -> None:
    sentence = "Houseplants need less water in winter."
    verdict = rule(f"{sentence} {GOOD} {sentence}")
    assert Flaw.REPETITIVE in verdict.flaws
    assert verdict.repetition == 1.0


def test_a_loop_of_phrases_is_repetitive() -> None:
    loop = "Give houseplants some light and some water and some light and some water in winter"
    assert Flaw.REPETITIVE in rule(f"{loop} and some light and some water and some air.").flaws


@pytest.mark.parametrize(
    "echo",
    [
        f"{QUESTION} Keeping your houseplants alive in winter is how you keep houseplants alive.",
        "You asked how you keep your houseplants alive in winter, and that is really good to do.",
    ],
)
def test_repeating_the_question_is_no_answer(echo: str) -> None:
    assert Flaw.ECHO in rule(echo).flaws


def test_courtesy_adds_nothing_and_numbers_do() -> None:
    question = "How many apples does Mia have left?"
    assert new_words(question, "Hello there, thank you! Mia has apples left. Good luck.") == 0
    assert new_words(question, "Mia has 9 apples left.") == 1


@pytest.mark.parametrize("noise", ["<|im_start|>user", "```python\nx = 1\n```", "| a | --- |"])
def test_markup_and_control_tokens_are_not_ordinary_text(noise: str) -> None:
    assert Flaw.BROKEN in rule(f"{GOOD} {noise}").flaws


def test_symbols_in_place_of_words_are_not_ordinary_text() -> None:
    assert Flaw.BROKEN in rule("houseplants winter " + "#$%& @@@ ~~~~ ^^^^ " * 12 + ".").flaws


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
        assert rule(answer, question).passes, (question, rule(answer, question))


def test_answers_to_another_question_are_off_topic() -> None:
    for (question, own), (other, answer) in product(ON_TOPIC.items(), repeat=2):
        if question != other:
            assert Flaw.OFF_TOPIC in rule(answer, question).flaws, (question, answer)
            assert Flaw.OFF_TOPIC not in rule(own, question).flaws


def test_polite_filler_is_off_topic() -> None:
    filler = (
        "That is a great question and I am always happy to help you with anything you need. There "
        "are many ways to do it, and everybody should find what is best for them."
    )
    for question in ON_TOPIC:
        assert Flaw.OFF_TOPIC in rule(filler, question).flaws


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
    assert flaw in rule(answer).flaws


def test_a_sentence_a_line_is_a_list() -> None:
    lines = "\n".join(sentence + "." for sentence in GOOD[:-1].replace(", ", ". ").split(". "))
    assert Flaw.LIST in rule(lines).flaws


def test_all_reasons_are_reported_at_once() -> None:
    verdict = rule("1. **Eat**\n2. **Drink**\n3. **Drive", finish="length")
    assert set(verdict.flaws) >= {Flaw.LIST, Flaw.BOLD, Flaw.TOO_SHORT, Flaw.CUT, Flaw.OFF_TOPIC}


def test_limits_move_the_lines() -> None:
    limits = replace(DEFAULT_LIMITS, min_words=3, min_new_words=1)
    assert assess(QUESTION, "Water houseplants less in winter.", "stop", limits).passes
