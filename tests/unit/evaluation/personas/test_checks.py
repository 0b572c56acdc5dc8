"""Each check on answers that pass it and answers that do not."""

from __future__ import annotations

from typing import Any

import pytest

from rejoinder.evaluation.personas.checks import CHECKS
from rejoinder.evaluation.rules import Reading

QUESTION = "How do I grow tomatoes on a balcony?"
CASES: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("words", {"min": 3}, "Water them well.", None),
    ("words", {"min": 4}, "Water them well.", "too_short"),
    ("words", {"min": 1, "max": 2}, "Water them well.", "too_long"),
    ("sentences", {"max": 1}, "Water them every morning.", None),
    ("sentences", {"max": 1}, "Use pots, e.g. big ones, for Mr. Miller.", None),
    ("sentences", {"max": 1}, "It grows to 1.5 meters.", None),
    ("sentences", {"max": 1}, "Water them. Every morning.", "too_many_sentences"),
    ("sentences", {"max": 1}, "Water them\nEvery morning", "too_many_sentences"),
    ("sentences", {"max": 1}, "1. Water them.", "too_many_sentences"),
    ("sentences", {"min": 2}, "Water them.", "too_few_sentences"),
    ("no_list", {}, "Water and feed them.", None),
    ("no_list", {}, "- Water\n- Feed", "list"),
    ("no_list", {"fault": "points"}, "- Water\n- Feed", "points"),
    ("no_bold", {}, "Water them.", None),
    ("no_bold", {}, "**Water** them.", "bold"),
    ("no_exclamation_mark", {}, "Water them.", None),
    ("no_exclamation_mark", {}, "Water! Then feed them.", "exclamation"),
    ("no_exclamation_mark", {}, "Water them！", "exclamation"),
    ("plain_ascii", {}, "It's 20 degrees, isn't it?", None),
    ("plain_ascii", {}, "It’s 20 degrees.", "not_ascii"),
    ("plain_ascii", {}, "Water them 😊.", "not_ascii"),
    ("greeting", {}, "Hello, water them.", None),
    ("greeting", {}, "  good morning! Water them.", None),
    ("greeting", {}, "Hi there. Water them.", None),
    ("greeting", {}, "Water them. Hello.", "no_greeting"),
    ("greeting", {}, "History says: water them.", "no_greeting"),
    ("greeting", {}, "Hello and welcome! Water them.", None),
    ("greeting", {}, "Good morning, my friend. Water them.", None),
    ("greeting", {}, "Welcome to the world of tomatoes.", "no_greeting"),
    ("greeting", {}, "Welcome to gardening. Water them.", "no_greeting"),
    ("greeting", {}, "Hello is a word that people say.", "no_greeting"),
    ("greeting", {"words": ("moin",)}, "Hello, water them.", "no_greeting"),
    ("warm_ending", {}, "Water them. Good luck with it!", None),
    ("warm_ending", {}, "Water them. You’ve got this.", None),
    ("warm_ending", {}, "Good luck. Water them.", "no_warm_ending"),
    ("warm_ending", {}, "Good luck.", "no_warm_ending"),
    ("warm_ending", {}, "Water them. That is not a good lucky day.", "no_warm_ending"),
    ("warm_ending", {}, "Water them. And then, enjoy your harvest!", None),
    ("warm_ending", {}, "Water them. I hope this helps.", None),
    ("warm_ending", {}, "Water them. So have a lovely weekend.", None),
    ("warm_ending", {}, "Water them every day, they need it. Have fun with them.", None),
    ("warm_ending", {}, "Cut them. Have a good knife in the house.", "no_warm_ending"),
    ("warm_ending", {}, "Make sure that you have a good knife. It cuts.", "no_warm_ending"),
    ("warm_ending", {}, "Cut. Make sure that you have a good day for it.", "no_warm_ending"),
    ("warm_ending", {}, "Water them. Children do not enjoy that.", "no_warm_ending"),
    ("warm_ending", {}, "Water them. In summer, I enjoy that.", "no_warm_ending"),
    ("warm_ending", {}, "Water them. Enjoy nothing of it.", "no_warm_ending"),
    ("must_match", {"pattern": r"\bpots?\b", "fault": "no_pot"}, "Use a Pot.", None),
    ("must_match", {"pattern": r"\bpots?\b", "fault": "no_pot"}, "Use a potato.", "no_pot"),
    ("must_not_match", {"pattern": "sun", "fault": "sunny"}, "Use a pot.", None),
    ("must_not_match", {"pattern": "sun", "fault": "sunny"}, "Use the Sun.", "sunny"),
]


@pytest.mark.parametrize(("name", "parameters", "answer", "fault"), CASES)
def test_a_check_finds_its_fault_and_nothing_else(
    name: str, parameters: dict[str, Any], answer: str, fault: str | None
) -> None:
    check = CHECKS[name].model_validate(parameters)
    found = check.fault_of(Reading.of(QUESTION, answer, "stop"))
    assert found == fault
    assert found is None or found in check.faults


def test_every_check_has_cases_of_both_kinds() -> None:
    for name in CHECKS:
        results = {fault is None for case, _, _, fault in CASES if case == name}
        assert results == {True, False}, name


def test_bounds_have_only_the_faults_that_they_can_find() -> None:
    assert CHECKS["words"].model_validate({"min": 5}).faults == ("too_short",)
    assert CHECKS["words"].model_validate({"max": 5}).faults == ("too_long",)
