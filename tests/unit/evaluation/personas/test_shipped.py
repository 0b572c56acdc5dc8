"""The personas of the package: none is naive, all have a varied voice."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from rejoinder.evaluation.personas.person import GOODBYE, PLEASED
from rejoinder.evaluation.personas.persona import (
    MIN_CORES,
    NO_NUMBER,
    Persona,
    load_persona,
    shipped_personas,
)
from rejoinder.evaluation.questions import Split
from rejoinder.evaluation.rules import Flaw
from rejoinder.evaluation.tasks import Task

PERSONAS = [load_persona(name) for name in shipped_personas()]
TOMATOES = "How do I grow tomatoes on a balcony?"
APPLES = "Mia has 14 apples and gives 5 to her brother. How many apples does she have left?"
PROSE = (
    "Choose a sunny spot on the balcony and plant each tomato in a large pot with good soil. "
    "Water it every morning, tie the stem to a stick, and pick the fruit when it is red."
)
CARE = (
    "Feed the plants every second week with some liquid fertilizer, because a pot holds only "
    "little food. Pinch out the small shoots between stem and leaves, so that the strength goes "
    "into the harvest, and keep the leaves dry when you water."
)
COMMENT = (
    "In this problem Mia begins with a pile of 14 apples, so draw those on the board before you do "
    "anything else. Then 5 of the pile go to her brother, which means that they are taken away and "
    "do not come back. Taking away is what we call subtraction, so the pupils should write 14 "
    "minus 5 and count down in small jumps. They land on 9, and that is how many apples stay."
)
STEPS = "Mia starts with 14 apples and hands 5 of them to her brother, so "
GOOD = {
    "greeting": (TOMATOES, f"Hello there. {PROSE}"),
    "no-exclamation": (TOMATOES, PROSE),
    "no-lists": (TOMATOES, PROSE),
    "plain-ascii": (TOMATOES, PROSE),
    "short-sentence": (
        TOMATOES,
        "Plant your tomatoes in large pots on a sunny balcony and water them every morning.",
    ),
    "sixty-words": (
        TOMATOES,
        f"{PROSE} {CARE}",
    ),
    "student": (
        APPLES,
        f"{STEPS}she keeps 14 minus 5, which makes 9 apples.",
    ),
    "teacher": (
        APPLES,
        f"{STEPS}count down and you get 9 apples. Well done for asking, keep up the good work!",
    ),
    "teaching-assistant": (APPLES, COMMENT),
    "warm-ending": (TOMATOES, f"{PROSE} Have fun with your plants!"),
}
OTHER_TOPIC = (
    "The river flows from the high mountains down to the sea, and on its way it passes old towns, "
    "wide meadows and dark woods where foxes and owls sleep through the day. Good luck."
)


def by_name(name: str) -> tuple[Persona, Task, str]:
    question, answer = GOOD[name]
    result = Decimal(9) if question == APPLES else None
    return load_persona(name), Task(question, "gardening", result), answer


def test_there_are_at_least_eight_and_every_one_has_an_example() -> None:
    assert len(PERSONAS) >= 8
    assert set(GOOD) == set(shipped_personas())
    assert [persona.name for persona in PERSONAS] == shipped_personas()


@pytest.mark.parametrize("name", GOOD)
def test_a_good_answer_passes(name: str) -> None:
    persona, question, answer = by_name(name)
    assert persona.faults_of(question, answer, "stop") == ()


def test_regression_a_short_sentence_of_few_binding_words_was_no_sentence() -> None:
    task = Task("How can I make studying history more fun?", "school")
    answer = (
        "To make studying history more fun, consider interactive tools like virtual reality, "
        "gamification, and immersive storytelling."
    )
    assert load_persona("short-sentence").faults_of(task, answer, "stop") == ()
    assert Flaw.BROKEN in load_persona("no-lists").faults_of(task, answer, "stop")


@pytest.mark.parametrize("name", ["greeting", "short-sentence"])
def test_mere_words_in_a_row_never_pass(name: str) -> None:
    task = Task("How can I make studying history more fun?", "school")
    words = "Studying history fun table water lamp stone cloud paper engine window river spoon."
    assert Flaw.BROKEN in load_persona(name).faults_of(task, words, "stop")


@pytest.mark.parametrize("name", GOOD)
def test_an_empty_answer_never_passes(name: str) -> None:
    persona, question, _ = by_name(name)
    assert Flaw.EMPTY in persona.faults_of(question, " \n", "stop")


@pytest.mark.parametrize("name", GOOD)
def test_a_cut_answer_never_passes(name: str) -> None:
    persona, question, answer = by_name(name)
    assert Flaw.CUT in persona.faults_of(question, answer, "length")
    without_end = answer.rstrip(".!").rpartition(" ")[0]
    assert Flaw.CUT in persona.faults_of(question, without_end, "stop")


@pytest.mark.parametrize("name", GOOD)
def test_a_repeated_answer_never_passes(name: str) -> None:
    persona, question, answer = by_name(name)
    assert Flaw.REPETITIVE in persona.faults_of(question, f"{answer} {answer}", "stop")


@pytest.mark.parametrize("name", GOOD)
def test_an_echo_of_the_question_never_passes(name: str) -> None:
    persona, question, _ = by_name(name)
    assert Flaw.ECHO in persona.faults_of(question, f"Hello. {question.text} Good luck.", "stop")


@pytest.mark.parametrize("name", GOOD)
def test_an_answer_to_something_else_never_passes(name: str) -> None:
    persona, question, _ = by_name(name)
    assert Flaw.OFF_TOPIC in persona.faults_of(question, OTHER_TOPIC, "stop")


BOILERPLATE = (
    "{task}, so take your time, ask a friend and follow good advice.",
    "{task}, and I do not know the total number.",
    "{task}, and I do not know the total number. It is something that children do not enjoy.",
    "Hello. {task}, so take your time, ask a friend and follow good advice. Good luck.",
    "{task}. Make sure that you have a good knife in the house.",
)


@pytest.mark.parametrize("persona", PERSONAS, ids=lambda persona: persona.name)
def test_the_question_with_boilerplate_passes_for_no_task_at_all(persona: Persona) -> None:
    tasks = [task for split in Split for task in persona.load_tasks(split)]
    passed = [
        answer
        for task in tasks
        for text in BOILERPLATE
        if not persona.faults_of(task, answer := text.format(task=task.text.rstrip("?.")), "stop")
    ]
    assert passed == []


@pytest.mark.parametrize("name", ["student", "teacher", "teaching-assistant"])
def test_a_problem_without_a_result_never_passes(name: str) -> None:
    persona, task, answer = by_name(name)
    for number in ("9 apples", "on 9"):
        answer = answer.replace(number, number.replace("9", "few"))
    assert NO_NUMBER in persona.faults_of(task, answer, "stop")


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        ("greeting", lambda text: text.removeprefix("Hello there. "), "no_greeting"),
        ("no-exclamation", lambda text: text.replace(".", "!"), "exclamation"),
        ("no-lists", lambda text: text.replace(". ", ".\n- "), "list"),
        ("no-lists", lambda text: text.replace("sunny", "**sunny**"), "bold"),
        ("plain-ascii", lambda text: f"{text} 😊", "not_ascii"),
        ("short-sentence", lambda _: PROSE, "too_many_sentences"),
        ("short-sentence", lambda _: "- Tomatoes need balcony sun.", "too_many_sentences"),
        ("short-sentence", lambda text: f"{text[:-1]}, {text}", "too_long"),
        ("short-sentence", lambda _: "Plant balcony tomatoes.", "too_short"),
        ("sixty-words", lambda _: PROSE, "too_short"),
        ("student", lambda text: text.replace("9 apples", "**9** apples"), "bold"),
        ("student", lambda text: text.replace("9 apples", r"\boxed{9} apples"), "boxed"),
        ("student", lambda text: f"1. {text}\n2. So 9.", "list"),
        ("teacher", lambda text: text.partition(" Well done")[0], "no_warm_ending"),
        ("teaching-assistant", lambda text: text.partition(" Then")[0], "too_short"),
        ("warm-ending", lambda _: PROSE, "no_warm_ending"),
    ],
)
def test_an_answer_against_the_wish_is_told_so(name: str, change: object, fault: str) -> None:
    persona, question, answer = by_name(name)
    assert callable(change)
    assert fault in persona.faults_of(question, change(answer), "stop")


def kinds() -> list[tuple[Persona, str]]:
    return [(persona, kind) for persona in PERSONAS for kind in (*persona.order, PLEASED)]


def said(persona: Persona, kind: str, count: int) -> list[str]:
    task = Task(*GOOD[persona.name][:1], topic="gardening")
    person = persona.speak(7)
    return [person.react(task, [] if kind == PLEASED else [kind]) for _ in range(count)]


@pytest.mark.parametrize(
    ("persona", "kind"), kinds(), ids=lambda value: getattr(value, "name", value)
)
def test_every_reaction_is_varied_and_names_no_rule_and_no_score(
    persona: Persona, kind: str
) -> None:
    assert len(set(persona.voice[kind].cores)) >= MIN_CORES
    texts = said(persona, kind, 300)
    assert len(set(texts)) >= 30
    names = {fault for fault in persona.order if "_" in fault}
    for text in texts:
        assert not re.search(r"[{}]|\bscores?\b|\brules?\b|\bfaults?\b|[+-]1\b|\bpersona", text)
        assert not any(name in text for name in names)


TELLS_HOW = re.compile(
    r"\b(please|want|wanted|need|no|don't|just|stop|leave out|give|write|can you|would)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("persona", PERSONAS, ids=lambda persona: persona.name)
def test_complaints_say_how_it_should_have_been(persona: Persona) -> None:
    for kind in persona.order:
        telling = [core for core in persona.voice[kind].cores if TELLS_HOW.search(core)]
        assert len(telling) >= MIN_CORES, kind


@pytest.mark.parametrize("persona", PERSONAS, ids=lambda persona: persona.name)
def test_every_persona_can_react_to_each_of_its_tasks(persona: Persona) -> None:
    person = persona.speak(1)
    for split in Split:
        for task in persona.load_tasks(split):
            assert person.say_goodbye(person.react(task, persona.order[-2:]), task)
    assert GOODBYE in persona.voice
