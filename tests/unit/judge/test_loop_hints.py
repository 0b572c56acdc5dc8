"""The judging loop with a hint judge beside the judge: neither costs what the other found."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from judge_fakes import UNREACHABLE, FakeJournal, FakeJudge, judgement, until
from rejoinder.algorithms import build_algorithm
from rejoinder.config import TrainerConfig
from rejoinder.journal.base import SampleRule
from rejoinder.journal.records import HintMaker, SampleSpec
from rejoinder.judge import loop as loop_module
from rejoinder.judge.hints.base import HintFate, Hinting
from rejoinder.judge.loop import JudgeLoop, LoopLimits
from rejoinder.types import Fate, Judgement

COMBINE = build_algorithm(TrainerConfig(algorithm="combine"))
OPD = build_algorithm(TrainerConfig(algorithm="opd"))
MAKER = HintMaker("fake-hints", "llm", "fake at nowhere", "0123")
HINT = ("Answer in one short sentence.",)
FAILED = Hinting((), HintFate.FAILED, "http_500: detail", 0.0, ("http_500: detail",))
NOTHING = Hinting((), HintFate.NOTHING_SAID, "", 0.0)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "_POLL_S", 0.005)


class FakeHints:
    """Gives the results of a script, the last one for ever; raises what is an exception."""

    maker = MAKER

    def __init__(self, *script: Hinting | Exception | float) -> None:
        self.script = list(script)
        self.calls = 0

    async def hints(self, *_: object) -> Hinting:
        self.calls += 1
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, float):
            await asyncio.sleep(step)
            return NOTHING
        if isinstance(step, Exception):
            raise step
        return step

    async def check(self) -> None: ...

    async def close(self) -> None: ...


@asynccontextmanager
async def working(
    journal: FakeJournal,
    judge: FakeJudge | FakeBoth | None,
    hints: FakeHints | FakeBoth | None,
    deadline_s: float = 5,
    rule: SampleRule = COMBINE,
):
    stop = asyncio.Event()
    limits = LoopLimits(2, deadline_s, attempts=3)
    task = asyncio.create_task(JudgeLoop(journal, judge, rule, limits, hints=hints).run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def test_verdict_and_hint_make_one_sample() -> None:
    journal = FakeJournal()
    async with working(journal, FakeJudge(judgement(-1)), FakeHints(Hinting(HINT, None, "", 0.1))):
        await until(lambda: journal.commits)
    assert journal.commits == [("turn-0", judgement(-1), SampleSpec(-1.0, HINT, MAKER), None)]
    assert journal.counts == {("hints", "accepted"): 1}
    assert journal.heartbeats[-1].detail["hints_fingerprint"] == "fake-hints"


async def test_a_reply_that_holds_no_hint_leaves_the_verdict_and_is_counted() -> None:
    journal = FakeJournal()
    async with working(journal, FakeJudge(judgement(1)), FakeHints(NOTHING)):
        await until(lambda: journal.commits)
    assert journal.commits == [("turn-0", judgement(1), SampleSpec(1.0), None)]
    assert journal.counts == {("hints", "nothing_said"): 1}
    assert journal.hintless == ["nothing_said"]


@pytest.mark.parametrize(
    ("failure", "code", "deadline_s"),
    [
        (FAILED, "http_500", 5),
        (RuntimeError("broken"), "exception", 5),
        (9.0, "timeout", 0.05),
    ],
)
async def test_a_failed_hint_never_costs_a_valid_verdict(
    failure: Hinting | Exception | float, code: str, deadline_s: float
) -> None:
    journal, hints = FakeJournal(), FakeHints(failure)
    async with working(journal, FakeJudge(judgement(1)), hints, deadline_s):
        await until(lambda: journal.commits)
    assert journal.commits == [("turn-0", judgement(1), SampleSpec(1.0), None)]
    assert journal.counts == {("hints", "failed"): 1, ("failed_hint_calls", code): 1}
    assert journal.retries == []


async def test_where_only_a_hint_could_teach_a_failed_one_is_asked_again() -> None:
    journal, hints = FakeJournal(), FakeHints(FAILED, Hinting(HINT, None, "", 0.1))
    async with working(journal, FakeJudge(judgement(0)), hints):
        await until(lambda: journal.commits)
    assert journal.retries == [("turn-0", 1.0, True)]
    assert journal.commits == [("turn-0", judgement(0), SampleSpec(None, HINT, MAKER), None)]


async def test_no_attempt_is_used_up_while_the_hint_judge_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_module, "_LONGEST_PAUSE_S", 0.01)
    away = Hinting((), HintFate.FAILED, "unreachable: x", 0.0, ("unreachable: x",))
    journal, hints = FakeJournal(), FakeHints(*[away] * 6, Hinting(HINT, None, "", 0.1))
    async with working(journal, FakeJudge(judgement(0)), hints):
        await until(lambda: journal.commits)
    assert journal.retries == [("turn-0", 0.0, False)] * 6
    assert journal.commits == [("turn-0", judgement(0), SampleSpec(None, HINT, MAKER), None)]


async def test_it_is_not_asked_for_ever() -> None:
    journal, hints = FakeJournal(), FakeHints(FAILED)
    async with working(journal, FakeJudge(judgement(0)), hints):
        await until(lambda: journal.commits)
    assert hints.calls == 3
    assert journal.commits == [("turn-0", judgement(0), None, Fate.HINT_FAILED)]
    assert journal.heartbeats[-1].last_error == "hints: http_500: detail"


async def test_a_judge_that_fails_does_not_cost_the_hint() -> None:
    journal, judge = FakeJournal(), FakeJudge(judgement(None, "timeout"))
    async with working(journal, judge, FakeHints(Hinting(HINT, None, "", 0.1))):
        await until(lambda: journal.commits)
    assert journal.commits[0][2:] == (SampleSpec(None, HINT, MAKER), None)


# --- one pass for both ---------------------------------------------------------------------------


class FakeBoth:
    """Judge and hint judge in one; gives the results of a script, the last one for ever."""

    fingerprint = "fake-1"
    maker = MAKER

    def __init__(self, *script: tuple[Judgement, Hinting] | Exception | float) -> None:
        self.script = list(script)
        self.calls = 0

    async def read(self, *_: object) -> tuple[Judgement, Hinting]:
        self.calls += 1
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, float):
            await asyncio.sleep(step)
            return judgement(1), NOTHING
        if isinstance(step, Exception):
            raise step
        return step

    async def judge(self, *turn: object) -> Judgement:
        return (await self.read(*turn))[0]

    async def hints(self, *turn: object) -> Hinting:
        return (await self.read(*turn))[1]

    async def check(self) -> None: ...

    async def close(self) -> None: ...


async def test_one_that_is_both_is_asked_once() -> None:
    journal, both = FakeJournal(), FakeBoth((judgement(-1), Hinting(HINT)))
    async with working(journal, both, both):
        await until(lambda: journal.commits)
    assert both.calls == 1
    assert journal.commits == [("turn-0", judgement(-1), SampleSpec(-1.0, HINT, MAKER), None)]


async def test_in_one_pass_a_failed_hint_costs_no_verdict_and_is_counted() -> None:
    journal, both = FakeJournal(), FakeBoth((judgement(1), FAILED))
    async with working(journal, both, both):
        await until(lambda: journal.commits)
    assert journal.commits == [("turn-0", judgement(1), SampleSpec(1.0), None)]
    assert journal.counts == {("hints", "failed"): 1, ("failed_hint_calls", "http_500"): 1}
    assert journal.retries == []


@pytest.mark.parametrize(
    ("failure", "code"), [(RuntimeError("broken"), "exception"), (9.0, "timeout")]
)
async def test_a_pass_that_breaks_off_fails_both_and_is_tried_again(
    failure: Exception | float, code: str
) -> None:
    journal, both = FakeJournal(), FakeBoth(failure, (judgement(-1), Hinting(HINT)))
    async with working(journal, both, both, deadline_s=0.05):
        await until(lambda: journal.commits)
    assert journal.retries == [("turn-0", 1.0, True)]
    assert journal.counts["failed_calls", code] == journal.counts["failed_hint_calls", code] == 1
    assert journal.commits[0][2] == SampleSpec(-1.0, HINT, MAKER)


async def test_of_what_a_person_scored_one_pass_gives_the_hint_alone() -> None:
    journal, both = FakeJournal(feedback=1), FakeBoth((judgement(-1), Hinting(HINT)))
    async with working(journal, both, both):
        await until(lambda: journal.commits)
    assert journal.commits == [("turn-0", None, SampleSpec(1.0, HINT, MAKER), None)]


# --- no verdict is asked for ---------------------------------------------------------------------


async def test_without_a_judge_hints_alone_are_committed_and_no_verdict_is_told() -> None:
    journal = FakeJournal(2)
    hints = FakeHints(Hinting(HINT), NOTHING)
    async with working(journal, None, hints, rule=OPD):
        await until(lambda: len(journal.commits) == 2)
    found = [commit[1:] for commit in journal.commits]
    assert (None, SampleSpec(None, HINT, MAKER), None) in found
    assert (None, None, Fate.NO_HINT) in found
    assert journal.counts == {("hints", "accepted"): 1, ("hints", "nothing_said"): 1}
    detail = journal.heartbeats[-1].detail
    assert detail["fingerprint"] is None
    assert set(detail["verdicts"].values()) == {0}


async def test_without_a_judge_a_hint_judge_that_fails_is_asked_again_and_then_named() -> None:
    journal, hints = FakeJournal(), FakeHints(FAILED)
    async with working(journal, None, hints, rule=OPD):
        await until(lambda: journal.commits)
    assert hints.calls == 3
    assert journal.commits == [("turn-0", None, None, Fate.HINT_FAILED)]


@pytest.mark.parametrize(
    ("broken", "code"), [({"attempt": 4}, "died"), ({"unreadable": "damaged"}, "unreadable")]
)
async def test_without_a_judge_a_job_that_must_not_be_read_is_named_too(
    broken: dict[str, object], code: str
) -> None:
    journal, hints = FakeJournal(**{"attempt": 3, **broken}), FakeHints(Hinting(HINT))
    async with working(journal, None, hints, rule=OPD):
        await until(lambda: journal.commits)
    assert hints.calls == 0
    assert journal.commits == [("turn-0", None, None, Fate.HINT_FAILED)]
    assert journal.counts == {("failed_hint_calls", code): 1, ("hints", "failed"): 1}


@pytest.mark.parametrize("score", [-1, 0, 1])
async def test_a_judge_is_not_asked_of_what_a_person_scored_and_the_hint_is_still_drawn(
    score: int,
) -> None:
    journal, judge = FakeJournal(feedback=score), FakeJudge(UNREACHABLE)
    async with working(journal, judge, FakeHints(Hinting(HINT))):
        await until(lambda: journal.commits)
    assert judge.calls == 0
    reward = float(score) if score else None
    assert journal.commits == [("turn-0", None, SampleSpec(reward, HINT, MAKER), None)]


async def test_a_hint_that_failed_costs_no_person_s_score() -> None:
    journal = FakeJournal(feedback=-1)
    async with working(journal, FakeJudge(judgement(1)), FakeHints(FAILED)):
        await until(lambda: journal.commits)
    assert journal.commits == [("turn-0", None, SampleSpec(-1.0), None)]
    assert journal.retries == []
