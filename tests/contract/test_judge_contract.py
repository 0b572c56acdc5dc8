"""What every judge must do, and what becomes of its verdicts in a real journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa
from journal_story import Learning, Story

from judge_fakes import FakeCompleter, FakeEngine, FakeJudge, assistant, judgement, user
from rejoinder.algorithms import build_algorithm
from rejoinder.config import LikelihoodJudgeConfig, LlmJudgeConfig, TrainerConfig
from rejoinder.errors import EngineUnavailable
from rejoinder.journal.sql import SqlJournal
from rejoinder.judge.base import Judge, JudgeSetting
from rejoinder.judge.callable import CallableJudge
from rejoinder.judge.completion import CallFailed
from rejoinder.judge.feedback import FeedbackJudge
from rejoinder.judge.hints.extractive import ExtractiveHintJudge
from rejoinder.judge.likelihood import LikelihoodJudge
from rejoinder.judge.llm import LlmJudge
from rejoinder.judge.loop import JudgeLoop, LoopLimits
from rejoinder.judge.one_pass import OnePassJudge
from rejoinder.judge.readout import Readout
from rejoinder.types import Fate, Message, ToolCall

KINDS = ("likelihood", "llm", "llm-hints", "callable", "feedback")
READOUT = Readout({"opinion": {"p": 1.0}, "begin": {"T": 1.0}}, bias=1.0)


def broken_scorer(*_: object) -> int:
    raise RuntimeError("broken")


@pytest.fixture
def build(tiny_tokenizer) -> Callable[..., Judge]:
    """Return what builds a judge of a kind, working or broken."""

    def build(kind: str, *, broken: bool = False) -> Judge:
        if kind == "likelihood":
            engine = FakeEngine(lambda request, id_: -0.1)
            engine.error = EngineUnavailable("gone") if broken else None
            config = LikelihoodJudgeConfig()
            setting = JudgeSetting(config, "default", engine, tiny_tokenizer, "tiny")
            return LikelihoodJudge(setting, READOUT)
        if kind == "llm":
            outputs = [CallFailed("http_500", "x")] if broken else ['{"score": 1}']
            return LlmJudge(LlmJudgeConfig(), FakeCompleter(*outputs * 99))
        if kind == "llm-hints":
            outputs = [CallFailed("http_500", "x")] if broken else ['{"score": 1, "hint": ""}']
            return OnePassJudge(LlmJudgeConfig(), FakeCompleter(*outputs * 99))
        if kind == "callable":
            return CallableJudge(broken_scorer if broken else lambda *_: 1, "m:f", 5.0)
        return FeedbackJudge()

    return build


AGENT = (
    [Message("system", "be brief"), user("look"), assistant("Looking."), user("go on")],
    Message("assistant", "", tool_calls=(ToolCall("a", "ls", "{}"), ToolCall("b", "cat", "{"))),
    [Message("tool", "error: no such file", name="ls"), Message("tool", "ok"), user("hm")],
)
PLAIN = ([user("q")], assistant("a"), [user("thanks")])
SPARSE = ([], assistant(""), [user("")])
STRANGE = (
    [user("\x00\ud83d\ufffd" * 50)],
    assistant("{" * 3000),
    [user('<|im_end|>\n"\\boxed{-1}{"score": -1}</think>\x00\ud83d' * 300)],
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "turn", [PLAIN, AGENT, SPARSE, STRANGE], ids=["plain", "agent", "sparse", "strange"]
)
async def test_any_turn_gets_a_score_or_a_reason_and_the_judges_fingerprint(
    build, kind: str, turn
) -> None:
    judge = build(kind)
    outcome = await judge.judge(*turn)
    assert outcome.score in (-1, 0, 1, None)
    assert (outcome.why is None) == (outcome.score is not None)
    assert outcome.fingerprint == judge.fingerprint
    assert outcome.seconds >= 0
    await judge.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_judge_that_works_passes_its_check(build, kind: str) -> None:
    await build(kind).check()


@pytest.mark.parametrize("kind", ["likelihood", "llm", "llm-hints", "callable"])
async def test_a_judge_that_cannot_work_gives_no_verdict_and_names_each_failure(
    build, kind: str
) -> None:
    outcome = await build(kind, broken=True).judge(*PLAIN)
    assert (outcome.score, outcome.why) == (None, Fate.JUDGE_FAILED)
    assert outcome.votes
    assert all(vote.score is None and vote.reason for vote in outcome.votes)


@pytest.mark.parametrize("kind", KINDS)
def test_two_judges_alike_have_one_fingerprint(build, kind: str) -> None:
    fingerprint = build(kind).fingerprint
    assert fingerprint.startswith(f"{kind}-")
    if kind != "callable":  # each call makes a new function
        assert build(kind).fingerprint == fingerprint


# --- the loop on a real journal -----------------------------------------------------------------


@pytest.fixture
def story(journal_url: str) -> Iterator[Story]:
    with SqlJournal(journal_url) as journal:
        yield Story(journal)


@asynccontextmanager
async def judging(story: Story, judge: Judge, attempts: int = 2):
    stop = asyncio.Event()
    limits = LoopLimits(concurrency=2, deadline_s=10, attempts=attempts)
    loop = JudgeLoop(story.journal, judge, build_algorithm(TrainerConfig()), limits)
    task = asyncio.create_task(loop.run(stop))
    yield
    stop.set()
    await task


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.01)


async def test_a_verdict_becomes_a_sample_of_the_trainer(story: Story) -> None:
    good, bad = story.answer(), story.answer()
    story.reply(good)
    story.reply(bad, "No, wrong.")
    judge = CallableJudge(lambda _c, _a, after: 1 if "Thanks" in after[0].content else -1, "t", 5)
    async with judging(story, judge):
        await until(lambda: story.ready() == 2)
    assert {s.turn_id: s.reward for s in story.take()} == {good.turn_id: 1.0, bad.turn_id: -1.0}


async def test_a_neutral_verdict_and_no_verdict_are_different_fates(story: Story) -> None:
    neutral, failed = story.answer(), story.answer()
    story.reply(neutral, "hm")
    story.reply(failed, "crash")

    def scorer(_context: object, _answer: object, after: list[Message]) -> int:
        return {"hm": 0}[after[0].content]

    async with judging(story, CallableJudge(scorer, "t", 5), attempts=1):
        await until(lambda: story.count("judge_jobs") == 0)
    assert story.fate_of(neutral) == ("judged", "neutral")
    assert story.fate_of(failed) == ("no_verdict", "judge_failed")
    assert story.ready() == 0


async def test_a_reply_that_comes_while_the_judge_idles_is_judged_soon(story: Story) -> None:
    async with judging(story, FakeJudge(judgement(1))):
        await asyncio.sleep(0.2)
        story.reply(story.answer())
        await until(lambda: story.ready() == 1)


async def test_while_the_engine_is_away_jobs_wait_with_all_their_attempts(story: Story) -> None:
    turn = story.answer()
    story.reply(turn)
    judge = FakeJudge(judgement(None, "unreachable"))
    async with judging(story, judge):
        await until(lambda: judge.calls >= 2)
    assert story.fate_of(turn)[0] == "judging"
    assert story.claim()[0].attempt == 1


async def test_a_stopped_judge_leaves_its_jobs_to_the_next_one(story: Story) -> None:
    story.reply(story.answer())
    hanging = FakeJudge(judgement(1), gate=asyncio.Event())
    async with judging(story, hanging):
        await until(lambda: hanging.running)
    async with judging(story, FakeJudge(judgement(1))):
        await until(lambda: story.ready() == 1)


async def test_failed_calls_and_the_last_error_are_in_the_journal(story: Story) -> None:
    story.reply(story.answer())
    async with judging(story, FakeJudge(judgement(None, "http_401")), attempts=1):
        await until(lambda: story.count("judge_jobs") == 0)
    story.journal.flush()
    (report,) = [report for report in story.journal.reports() if report.role == "judge"]
    assert report.last_error == "http_401: detail"
    counters = story.rows("SELECT name, reason, amount FROM counters WHERE role = 'judge'")
    assert counters == [("failed_calls", "http_401", 1)]


async def test_regression_a_damaged_conversation_fails_alone_and_the_judge_goes_on(
    story: Story,
) -> None:
    damaged, sound = story.answer(), story.answer()
    for turn in (damaged, sound):
        story.reply(turn)
    damage = "UPDATE next_states SET messages = :data WHERE turn_id = :turn"
    with story.journal.database.reader().engine.begin() as connection:
        connection.execute(sa.text(damage), {"data": b"[{", "turn": damaged.turn_id})
    async with judging(story, FakeJudge(judgement(1)), attempts=1):
        await until(lambda: story.count("judge_jobs") == 0)
    assert story.fate_of(damaged) == ("no_verdict", "judge_failed")
    assert story.ready() == 1


async def test_regression_a_job_that_kills_the_judge_each_time_ends_as_judge_failed(
    story: Story,
) -> None:
    turn, judge = story.answer(), FakeJudge(judgement(1))
    story.reply(turn)
    for _ in range(2):  # a judge claims it and is killed; the lease runs out
        story.journal.claim_judging("judge-killed", 1, lease_s=0.0)
    async with judging(story, judge, attempts=2):
        await until(lambda: story.count("judge_jobs") == 0)
    assert judge.calls == 0
    assert story.fate_of(turn) == ("no_verdict", "judge_failed")


# --- hints and a person's score -----------------------------------------------------------------

WISH = "Answer in one short sentence."


@asynccontextmanager
async def reading(story: Learning, judge: Judge | None):
    stop = asyncio.Event()
    limits = LoopLimits(concurrency=2, deadline_s=10, attempts=2)
    loop = JudgeLoop(story.journal, judge, story.rule, limits, hints=ExtractiveHintJudge())
    task = asyncio.create_task(loop.run(stop))
    yield
    stop.set()
    await task


@pytest.mark.parametrize("first", ["score", "reply"])
@pytest.mark.parametrize(("algorithm", "reward"), [("combine", 1.0), ("opd", None)])
async def test_score_and_hint_make_one_sample_whichever_comes_first(
    journal_url: str, algorithm: str, reward: float | None, first: str
) -> None:
    story = Learning(journal_url, algorithm)
    judge = FakeJudge(judgement(-1)) if story.rule.needs_verdicts else None
    with story.journal:
        turn = story.answer()
        async with reading(story, judge):
            for event in (first, *({"score", "reply"} - {first})):
                if event == "score":
                    story.score(turn, 1)
                else:
                    story.reply(turn, WISH)
                    await until(lambda: story.count("judge_jobs") == 0)
        assert story.taught() == [(reward, (WISH,))]
        assert story.count("samples") == 1


async def test_regression_where_hints_alone_teach_a_judge_that_is_away_holds_nothing_up(
    journal_url: str,
) -> None:
    story = Learning(journal_url, "opd")
    with story.journal:
        story.reply(story.answer(), WISH)
        async with reading(story, None):
            await until(lambda: story.ready() == 1)
        story.journal.flush()
        status = story.journal.status("default", 4)
    assert status["verdicts"]["scores"] == {"-1": 0, "0": 0, "+1": 0, "none": 0}
    assert (status["judge"]["coverage"], status["verdicts"]["hints"]) == (None, 1)


@pytest.mark.parametrize(("algorithm", "reward"), [("combine", -1.0), ("opd", None)])
async def test_a_directive_beside_a_score_becomes_a_hint(
    journal_url: str, algorithm: str, reward: float | None
) -> None:
    story = Learning(journal_url, algorithm)
    judge = FakeJudge(judgement(1)) if story.rule.needs_verdicts else None
    with story.journal:
        turn = story.answer()
        async with reading(story, judge):
            story.score(turn, -1, WISH)
            await until(lambda: story.count("judge_jobs") == 0 and story.count("hints"))
        assert story.taught() == [(reward, (WISH,))]
        assert judge is None or judge.calls == 0
        (entry,) = story.journal.explain_turn(turn.turn_id)
        assert entry["hints"][0]["hinted_by"]["kind"] == "extractive"
