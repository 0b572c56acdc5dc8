"""What is the person's own in a reply, and how much of it is read (rule 6)."""

from __future__ import annotations

import time

import pytest

from judge_fakes import assistant, user
from rejoinder.judge.hints.extractive import ExtractiveHintJudge
from rejoinder.judge.hints.leak import known_before
from rejoinder.judge.hints.spoken import spoken_sentences, without_tagged


@pytest.mark.parametrize(
    "text",
    [
        "Summarise this email for me.\nPlease use plain text. Do not use tables.",
        "My boss wrote:\nPlease keep it short and never use lists.\nWhat should I reply to him?",
        "Please proofread this:\nPlease keep it short.",
        "Please proofread this: please keep it short, use simple words.",
        "Tool result:\nAlways end with a warm greeting.",
        "<system-reminder>Keep it short. No lists.</system-reminder> ok",
        "<environment_details>\nPlease use plain text.\n</environment_details>",
        "<environment_details>\nPlease use plain text.",
        '<note to="you">Please use plain text.</note>',
        "He told me 'your letters aren't short enough, please keep them short'. What now?",
        'He told me "be brief". What now?',
        "Fix this text\nPlease use no lists.",
        "Here is a mail. Keep it short. Use no lists.",
        "Here's what he wrote. Please be brief. No lists.",
        "I got this from my boss: please keep it short.",
        "[system] Use plain text please.",
        "The user says: be brief and polite.",
        "Now translate the mail.\nDear all, please use simple words.",
    ],
)
def test_regression_text_by_others_gives_no_hint(text: str) -> None:
    judge = ExtractiveHintJudge()
    assert judge.read([user("Hello")], assistant("Hi"), [user(text)]).hints == ()


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("Two things:\n- No lists.", ["Two things:", "- No lists."]),
        ("I don't like lists, they're long.", ["I don't like lists, they're long."]),
        ("Use less <b> please.", ["Use less <b> please."]),
        ("Be brief. My boss wrote:\nUse lists.", ["Be brief."]),
        ("[HINT_START]Be brief.[HINT_END]", ["Be brief."]),
        ("End with \\boxed{1} please. Be brief.", ["Be brief."]),
    ],
)
def test_the_persons_own_sentences_stay(text: str, own: list[str]) -> None:
    assert list(spoken_sentences(text)) == own


def test_blocks_are_cut_out_with_what_is_in_them() -> None:
    assert without_tagged("a <x-y>b <i>c</i></x-y> d").split() == ["a", "d"]
    assert without_tagged("a <b> c") == "a <b> c"


def test_what_a_special_token_leaves_of_a_hint_is_too_little_to_be_one() -> None:
    judge, wish = ExtractiveHintJudge(("Answer",)), [user("That is too long.")]
    assert ExtractiveHintJudge().read([], assistant("Hm."), wish).hints == ("Answer briefly.",)
    assert judge.read([], assistant("Hm."), wish).hints == ()


def test_all_messages_of_a_next_state_share_one_budget() -> None:
    judge, filler = ExtractiveHintJudge(), user("The weather is nice today. " * 200)
    wish = user("Please use simple words.")
    assert judge.read([], assistant(""), [wish, *[filler] * 50]).hints
    assert not judge.read([], assistant(""), [*[filler] * 50, wish]).hints


def test_what_lies_behind_the_budget_is_not_read_for_nobody_knows_whose_it_is() -> None:
    said = f"{'The weather is nice. ' * 200}My boss wrote:\n{'Hm. ' * 2000}Use simple words."
    assert not ExtractiveHintJudge().read([], assistant(""), [user(said)]).hints
    torn = "Please use simple words" + " and short ones" * 400
    assert not ExtractiveHintJudge().read([], assistant(""), [user(torn)]).hints


def test_all_messages_of_a_context_share_one_budget_and_the_newest_count() -> None:
    old, filler = user("tulips"), user("word " * 20_000)
    assert "tulip" in known_before([old], assistant("answer"))
    assert "tulip" not in known_before([old, filler], assistant("answer"))
    assert "tulip" in known_before([filler, old], assistant("answer"))


@pytest.mark.parametrize(
    "text",
    [
        "<a>" * 300_000,
        "<a" * 300_000,
        f"<{'a' * 600_000}",
        "'a " * 300_000,
        "".join(f"<t{n}>" for n in range(99_999)),
    ],
    ids=["openers", "stumps", "a tag without end", "quotes", "names"],
)
def test_the_time_for_a_hostile_message_is_bounded(text: str) -> None:
    started = time.process_time()
    ExtractiveHintJudge().read([user(text)], assistant(text), [user(text)] * 3)
    # No matter of speed: work that grows with the square of such a text takes many minutes.
    assert time.process_time() - started < 60
