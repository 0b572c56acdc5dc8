"""One pass for score and hint: each is read for itself, and neither costs the other."""

from __future__ import annotations

import json

import pytest

from judge_fakes import FakeCompleter, assistant, user
from rejoinder.config import LlmJudgeConfig
from rejoinder.errors import ConfigError, JudgeError
from rejoinder.judge.completion import CallFailed, Completion
from rejoinder.judge.hints.base import HintFate, Hinting
from rejoinder.judge.llm import LlmJudge
from rejoinder.judge.one_pass import OnePassJudge
from rejoinder.judge.voting import failure_code
from rejoinder.types import Fate, Judgement

SHORTER, PROSE = "Keep it much shorter.", "Write in whole sentences."
DOWN = CallFailed("unreachable", "connection refused")
TURN = ([user("What is 6 times 7?")], assistant("1. 42"), [user("No list, please.")])


def said(score: int, hint: str | None = "") -> str:
    return json.dumps({"reason": "because", "score": score, "hint": hint})


async def read(
    *outputs: str | Completion | Exception, **settings: object
) -> tuple[Judgement, Hinting]:
    return await OnePassJudge(LlmJudgeConfig(**settings), FakeCompleter(*outputs)).read(*TURN)


async def test_each_call_is_a_vote_on_the_score_and_on_the_hint() -> None:
    completer = FakeCompleter(said(-1, SHORTER), said(-1, PROSE), said(1))
    judgement, hinting = await OnePassJudge(LlmJudgeConfig(), completer).read(*TURN)
    assert (judgement.score, [vote.score for vote in judgement.votes]) == (-1, [-1, -1, 1])
    assert hinting.hints == (SHORTER, PROSE)
    assert len(completer.prompts) == 3


@pytest.mark.parametrize("empty", [said(1), said(1, "  "), said(1, None)])
async def test_an_empty_hint_says_that_there_is_nothing_to_improve(empty: str) -> None:
    judgement, hinting = await read(empty, empty, empty)
    assert (judgement.score, hinting.why) == (1, HintFate.NOTHING_SAID)
    assert hinting.failed_calls == ()


@pytest.mark.parametrize("output", ['{"score": -1}', '{"score": -1, "hint": 7}', "\\boxed{-1}"])
async def test_a_hint_that_cannot_be_read_costs_no_score(output: str) -> None:
    judgement, hinting = await read(output, output, output)
    assert judgement.score == -1
    assert (hinting.why, len(hinting.failed_calls)) == (HintFate.FAILED, 3)
    assert hinting.detail.startswith("unparsable")


async def test_a_score_that_cannot_be_read_costs_no_hint() -> None:
    output = json.dumps({"score": "rather bad", "hint": SHORTER})
    judgement, hinting = await read(output, output, output)
    assert (judgement.score, judgement.why) == (None, Fate.JUDGE_FAILED)
    assert {failure_code(vote) for vote in judgement.votes} == {"unparsable"}
    assert hinting.hints == (SHORTER,)


async def test_a_hint_that_fails_the_checks_costs_no_score() -> None:
    judgement, hinting = await read(*[said(-1, "Say that Petra asked.")] * 3)
    assert (judgement.score, hinting.hints, hinting.why) == (-1, (), HintFate.LEAK)


@pytest.mark.parametrize("lost", [DOWN, Completion(said(-1, SHORTER), "length")])
async def test_a_call_that_fails_is_a_failed_vote_on_both(lost: Completion | Exception) -> None:
    judgement, hinting = await read(lost, lost, said(-1, SHORTER))
    assert (judgement.score, judgement.why) == (None, Fate.NO_QUORUM)
    assert (hinting.hints, hinting.why) == ((), HintFate.FAILED)
    assert len(hinting.failed_calls) == sum(vote.score is None for vote in judgement.votes) == 2


async def test_one_failed_call_of_three_changes_neither_majority() -> None:
    judgement, hinting = await read(DOWN, said(-1, SHORTER), said(-1, SHORTER))
    assert (judgement.score, hinting.hints) == (-1, (SHORTER,))
    assert hinting.failed_calls == ("unreachable: connection refused",)


async def test_the_check_needs_both_answers() -> None:
    await OnePassJudge(LlmJudgeConfig(), FakeCompleter(said(-1, SHORTER))).check()
    with pytest.raises(JudgeError, match="unparsable"):
        await OnePassJudge(LlmJudgeConfig(), FakeCompleter('{"score": -1}')).check()


def test_its_verdicts_are_not_those_of_the_judge_that_only_scores() -> None:
    both = OnePassJudge(LlmJudgeConfig(), FakeCompleter())
    assert both.fingerprint != LlmJudge(LlmJudgeConfig(), FakeCompleter()).fingerprint
    assert both.maker.fingerprint == both.fingerprint
    assert (both.maker.kind, both.maker.model) == ("judge", "fake at nowhere")
    assert OnePassJudge(LlmJudgeConfig(votes=5), FakeCompleter()).fingerprint != both.fingerprint


def test_a_quorum_that_cannot_be_reached_is_refused() -> None:
    with pytest.raises(ConfigError, match="quorum"):
        OnePassJudge(LlmJudgeConfig(votes=1, quorum=2), FakeCompleter())
