"""Task sets, their files, and when a number is right."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from rejoinder.errors import ConfigError
from rejoinder.evaluation.questions import Split, load_questions
from rejoinder.evaluation.tasks import EVERYDAY, WORD_PROBLEMS, last_number, load_tasks, parse_tasks

GSM8K = {
    "question": "Natalia sold clips to 48 friends, and half as many in May. How many in all?",
    "answer": "In May she sold 48/2 = <<48/2=24>>24 clips.\nTogether 48+24 = 72.\n#### 72",
}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("So 5 + 7 = 12.", "12"),
        ("She pays $1,250.50 in all", "1250.50"),
        ("The result is -3.", "-3"),
        ("10-3 apples", "3"),
        ("He has 4 apples, 3 pears, and more.", "3"),
        ("it costs $42.", "42"),
        ("**18**", "18"),
    ],
)
def test_the_last_number_of_a_text(text: str, number: str) -> None:
    assert last_number(text) == Decimal(number)


def test_a_text_without_digits_has_no_number() -> None:
    assert last_number("twelve") is None


def test_a_task_is_right_by_its_last_number_however_it_is_written() -> None:
    (task, *_) = parse_tasks("\n".join([json.dumps(GSM8K)] * 3), "x")
    assert task.is_right("First 24, then $72.00.")
    assert task.is_right("It is 72 or 24.") is False
    assert task.is_right("No idea.") is False


def test_everyday_questions_have_no_right_answer() -> None:
    tasks = load_tasks(EVERYDAY, Split.TRAINING)
    assert [task.text for task in tasks] == [one.text for one in load_questions(Split.TRAINING)]
    assert tasks[0].is_right("42") is None


def test_a_hundred_word_problems_train_and_fifty_are_held_out() -> None:
    training = load_tasks(WORD_PROBLEMS, Split.TRAINING)
    heldout = load_tasks(WORD_PROBLEMS, Split.HELDOUT)
    assert (len(training), len(heldout)) == (100, 50)
    texts = [task.text for task in (*training, *heldout)]
    assert len(set(texts)) == 150
    assert all(text.endswith("?") for text in texts)
    assert all(task.answer is not None and task.answer % 1 == 0 for task in training + heldout)


def test_a_file_of_gsm8k_loads_as_it_is(tmp_path: Path) -> None:
    lines = [json.dumps(GSM8K | {"question": f"{GSM8K['question']} ({n})"}) for n in range(6)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    training = load_tasks("train.jsonl", Split.TRAINING, tmp_path)
    heldout = load_tasks("train.jsonl", Split.HELDOUT, tmp_path)
    assert {task.answer for task in (*training, *heldout)} == {Decimal(72)}
    assert [task.text[-2] for task in training] == ["0", "1", "3", "4"]
    assert [task.text[-2] for task in heldout] == ["2", "5"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "not of the form"),
        ("[" * 200_000, "not of the form"),
        ('{"question": "How many?"}', "not of the form"),
        ('["How many?", "3"]', "not of the form"),
        ('{"question": " ", "answer": "3"}', "must be texts"),
        ('{"question": "How many?", "answer": 3}', "must be texts"),
        ('{"question": "How many?", "answer": "three"}', "no number"),
        ('{"question": "How many?", "answer": "2 + 2 = 4 #### four"}', "no number"),
    ],
)
def test_a_bad_line_is_named_with_its_number(line: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=f"mine, line 2: .*{fault}"):
        parse_tasks(f"{json.dumps(GSM8K)}\n{line}", "mine")


def test_unusual_line_separators_of_unicode_may_stand_in_a_question() -> None:
    question = "How many\u2028apples\u0085are left?"
    line = json.dumps({"question": question, "answer": "3"}, ensure_ascii=False)
    tasks = parse_tasks("\r\n".join([line] * 3), "mine")
    assert [task.text for task in tasks] == [question] * 3


def test_regression_half_a_character_in_a_question_is_replaced_and_sent_to_nobody() -> None:
    line = json.dumps({"question": "How many \ud83d apples \U0001f34e?", "answer": "3"})
    (task, *_) = parse_tasks("\n".join([line] * 3), "mine")
    assert task.text == "How many \ufffd apples \U0001f34e?"


def test_a_negative_number_is_as_exact_as_any() -> None:
    digits = "1" * 40
    assert last_number(f"-{digits}2") != last_number(f"-{digits}3")


def test_too_few_tasks_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 3"):
        parse_tasks(json.dumps(GSM8K), "mine")


@pytest.mark.parametrize("name", ["~nobody-of-this-name/mine.jsonl", "a\0.jsonl"])
def test_a_path_that_can_be_none_is_told(name: str) -> None:
    with pytest.raises(ConfigError):
        load_tasks(name, Split.TRAINING)


def test_an_unknown_set_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match="everyday, word_problems"):
        load_tasks("word-problems", Split.TRAINING)
