"""Persona files: what they hold, and how faults of a file are told."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.evaluation.personas.persona import Persona, load_persona, parse_persona
from rejoinder.evaluation.questions import Split
from rejoinder.evaluation.tasks import Task

CORES = "[" + ", ".join(f'"Please whisper, number {n}."' for n in range(6)) + "]"
TASK = Task("How do I grow tomatoes on a balcony?", "gardening")
GOOD = (
    "Plant your tomatoes in large pots on the sunny side of the balcony, water them every morning, "
    "and tie the stems to a stick."
)
FILE = f"""\
name = "whisperer"
description = "Wants quiet answers."

[[checks]]
check = "no_exclamation_mark"
fault = "loud"

[[checks]]
check = "words"
max = 60

[reactions.loud]
openers = ["Ouch."]
cores = {CORES}
closers = ["Quiet, please."]

[reactions.too_long]
cores = {CORES}

[reactions.pleased]
cores = {CORES}
"""


def parse(text: str = FILE) -> Persona:
    return parse_persona(text, "mine.toml", None)


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse(text)
    return str(error.value)


def test_a_file_makes_a_person_with_rule_and_words() -> None:
    persona = parse()
    assert persona.faults_of(TASK, GOOD, "stop") == ()
    assert persona.faults_of(TASK, GOOD.replace(".", "!"), "stop") == ("loud",)
    assert "Please whisper, number" in persona.speak(3).react(TASK, ["loud"])


def test_the_most_bothering_fault_comes_first() -> None:
    persona = parse()
    long_and_loud = " ".join(f"tomato{number} balcony" for number in range(40))
    faults = persona.faults_of(TASK, f"Tomatoes! {long_and_loud}", "length")
    assert faults == ("broken", "loud", "too_long", "cut")


def test_an_empty_answer_is_only_empty() -> None:
    assert parse().faults_of(TASK, "\n", "stop") == ("empty",)


def test_a_task_is_put_in_one_of_the_persons_ways() -> None:
    text = FILE.replace("[[checks]]", 'asks = ["Psst. {task}", "{task} Shh."]\n[[checks]]', 1)
    rng = random.Random(0)
    said = {parse(text).put(TASK, rng) for _ in range(30)}
    assert said == {f"Psst. {TASK.text}", f"{TASK.text} Shh."}


def test_without_a_word_about_it_a_person_asks_the_bare_task() -> None:
    assert parse().put(TASK, random.Random(0)) == TASK.text


def test_the_digest_changes_with_rule_and_words_and_not_with_comments() -> None:
    assert parse(f"# A remark.\n{FILE}").digest == parse().digest
    assert parse(FILE.replace("max = 60", "max = 61")).digest != parse().digest
    assert parse(FILE.replace("Ouch", "Au")).digest != parse().digest


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('name = "whisperer"\n', "", "name is required"),
        ("whisperer", "The Whisperer", "name: "),
        ("[reactions.too_long]", "[reaction.too_long]", "reaction: no such key; did you mean"),
        ('description = "', 'turn = 2\ndescription = "', "turn: no such key; did you mean turns?"),
        ('description = "', 'turns = 0\ndescription = "', "turns: "),
        ('description = "', 'asks = ["Now!"]\ndescription = "', "asks: 'Now!' lacks \"{task}\""),
        ('"words"', '"word"', "checks, number 2: 'word' is no check; did you mean words?"),
        ('check = "words"\n', "", "checks, number 2: None is no check; there are words, sentences"),
        ('"words"', "{ of = 3 }", "checks, number 2: {'of': 3} is no check; there are words"),
        ("max = 60", "mx = 60", "checks, number 2 (words): mx: no such key; did you mean max?"),
        ("max = 60", "", "checks, number 2 (words): "),
        ("max = 60", "max = 5\nmin = 9", "max = 5 is below min = 9"),
        ("max = 60", 'max = "60"', "checks, number 2 (words): max: "),
        ("too_long]", "too_short]", "reactions.too_short: no check of this file finds that"),
        ("too_long]", "too_short]", "reactions.too_long is required"),
        ("number 5", "number 4", "needs at least 6 different cores"),
        ("number 5", "{subject}", "the placeholders are {topic} and {word}, not ['subject']"),
        ("number 5", "{topic", "expected '}' before end of string"),
        ("number 5", "{topic:d}", "a placeholder is its name in braces and nothing else"),
        ("number 5", "{word!x}", "a placeholder is its name in braces and nothing else"),
        ("Ouch.", "Ouch, {word}.", "only cores may have placeholders"),
        ("[reactions.loud]", "[sense]\nmin_coverage = 0.0\n[reactions.loud]", "sense.min_coverage"),
    ],
)
def test_a_fault_of_the_file_is_told_with_its_place(old: str, new: str, told: str) -> None:
    text = refused(FILE.replace(old, new))
    assert text.startswith("mine.toml has faults:\n  ")
    assert told in text


def test_all_faults_are_told_at_once() -> None:
    text = refused(FILE.replace("max = 60", "mx = 60").replace("number 5", "number 4"))
    assert text.count("\n  ") >= 3


def test_doubled_braces_are_said_once_in_openers_too() -> None:
    assert parse(FILE.replace("Ouch.", "{{Ouch}}")).voice["loud"].openers == ("{Ouch}",)


def test_an_opener_that_is_a_core_as_well_has_no_placeholders_either() -> None:
    both = FILE.replace("Ouch.", "{word}!").replace("number 5.", 'number 5.", "{word}!')
    assert "only cores may have placeholders" in refused(both)


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999999999}", "(" * 9000])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    check = f'[[checks]]\ncheck = "must_match"\nfault = "odd"\npattern = "{pattern}"\n[[checks]]'
    assert f"{pattern!r} is no regular expression" in refused(FILE.replace("[[checks]]", check, 1))


@pytest.mark.parametrize("text", ["name = ", f"turns = {'1' * 5000}", f"a = {'[' * 20_000}"])
def test_broken_toml_is_told_as_such(text: str) -> None:
    with pytest.raises(ConfigError, match=r"mine\.toml is not valid TOML"):
        parse(text)


def test_an_unknown_persona_brings_a_suggestion() -> None:
    with pytest.raises(RejoinderError, match="did you mean no-lists"):
        load_persona("no-list")
    with pytest.raises(RejoinderError, match="there are greeting, "):
        load_persona("xyz")
    with pytest.raises(ConfigError, match="cannot read the persona"):
        load_persona("missing.toml")


def test_task_files_are_found_beside_the_persona(tmp_path: Path) -> None:
    tasks = "\n".join(f'{{"question": "How many, {n}?", "answer": "#### {n}"}}' for n in range(3))
    (tmp_path / "sums.jsonl").write_text(tasks)
    file = tmp_path / "mine.toml"
    file.write_text(FILE.replace("[[checks]]", 'tasks = "sums.jsonl"\n[[checks]]', 1))
    persona = load_persona(str(file))
    assert [task.text for task in persona.load_tasks(Split.HELDOUT)] == ["How many, 2?"]
