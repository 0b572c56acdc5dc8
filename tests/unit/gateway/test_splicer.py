"""Which turns the gateway remembers for prompts that continue them, and what it tells of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rejoinder.chat.splicing import SplicedPrompt, SpliceOutcome
from rejoinder.gateway.metrics import GatewayMetrics
from rejoinder.gateway.splicer import Splicer, explained
from rejoinder.models.tokenizer import ModelTokenizer

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "http-api.md"
ROOM = 1000


class Turns:
    """A journal's turns, and how often they were read."""

    def __init__(self, **turns: tuple[list[int], list[int]]) -> None:
        self.turns = turns
        self.reads: list[str] = []

    def __call__(self, turn_id: str) -> tuple[list[int], list[int]] | None:
        self.reads.append(turn_id)
        return self.turns.get(turn_id)


def splicer(tokenizer: ModelTokenizer, turns: Turns, max_ids: int = 100) -> Splicer:
    return Splicer(turns, tokenizer, GatewayMetrics(), max_ids)


def test_a_turn_that_was_answered_here_is_not_read(tiny_tokenizer):
    turns = Turns()
    made = splicer(tiny_tokenizer, turns)
    prompt = [1, 2]
    made.remember("t", prompt, prompt, [3])
    made.fetch("t")
    assert turns.reads == []
    assert made.splice("t", [1, 2, 3, 4], ROOM) == SplicedPrompt(
        [1, 2, 3, 4], SpliceOutcome.SAME, 3
    )


def test_a_turn_of_another_process_is_read_once(tiny_tokenizer):
    turns = Turns(t=([1, 2], [3]))
    made = splicer(tiny_tokenizer, turns)
    for _ in range(2):
        made.fetch("t")
        assert made.splice("t", [1, 2, 3, 4], ROOM).outcome is SpliceOutcome.SAME
    assert turns.reads == ["t"]


def test_a_turn_that_is_gone_leaves_the_rendering(tiny_tokenizer):
    made = splicer(tiny_tokenizer, Turns())
    made.fetch("gone")
    assert made.splice("gone", [1, 2], ROOM) == SplicedPrompt([1, 2], SpliceOutcome.UNREAD)


def test_the_turns_that_nobody_continued_for_longest_are_forgotten(tiny_tokenizer):
    turns = Turns()
    made = splicer(tiny_tokenizer, turns, max_ids=10)
    prompt = [1, 2, 3]
    made.remember("a", prompt, prompt, [4])
    made.remember("b", prompt, list(prompt), [4])  # two tokenisations: 7 ids
    for turn_id in ("a", "b"):
        made.fetch(turn_id)
    assert turns.reads == ["a"]
    made.remember("c", prompt, prompt, [4] * 20)
    made.fetch("c")
    assert turns.reads == ["a", "c"]


@pytest.mark.parametrize("outcome", SpliceOutcome)
def test_every_outcome_is_told_in_words_and_documented(outcome):
    told = explained(SplicedPrompt([1], outcome, 1), "t")
    assert told == {"rule": outcome.value, "why": told["why"], "turns": ["t"], "ids": 1}
    assert f"| `{outcome.value}` |" in REFERENCE.read_text("utf-8")
