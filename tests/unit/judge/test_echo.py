"""How much of a request comes back."""

from __future__ import annotations

import pytest

from judge_fakes import assistant, user
from rejoinder.judge.echo import echo
from rejoinder.types import Message

ASKED = [user("How long do I boil beetroot?")]


def test_asking_the_same_again_echoes_all_of_it() -> None:
    assert echo(ASKED, assistant("It is red."), [user("how long do I  boil beetroot?")]) == (1, 1)


def test_a_new_matter_echoes_nothing() -> None:
    assert echo(ASKED, assistant("An hour."), [user("Thanks, perfect.")]) == (0, 0)


def test_words_that_the_answer_gave_count_only_in_the_first_share() -> None:
    first, second = echo(ASKED, assistant("Boil beetroot?"), [user("boil beetroot?")])
    assert first == 1
    assert second < 0.2


@pytest.mark.parametrize(
    ("context", "next_state"),
    [(ASKED, [Message("tool", "x")]), ([Message("system", "s")], [user("x")]), ([], [])],
)
def test_without_a_person_on_both_sides_there_is_no_echo(context, next_state) -> None:
    assert echo(context, assistant("a"), next_state) is None


def test_scripts_without_spaces_echo_too() -> None:
    asked = [user("这趟火车几点到上海?")]
    first, _ = echo(asked, assistant("很舒适"), [user("我问的是火车几点到上海")])
    assert first > 0.3


def test_an_empty_reply_is_no_division_by_zero() -> None:
    assert echo(ASKED, assistant(""), [user("")]) == (0, 0)
