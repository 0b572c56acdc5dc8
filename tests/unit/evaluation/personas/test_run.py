"""One run against a scripted gateway that learns when it is told to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from fake_gateway import Asked, FakeGateway
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.client import ChatClient
from rejoinder.evaluation.personas.learner import Learner, RunningGateway
from rejoinder.evaluation.personas.outcomes import sessions_to_converge
from rejoinder.evaluation.personas.persona import load_persona
from rejoinder.evaluation.personas.records import Ended, RunRecord
from rejoinder.evaluation.personas.run import MEASURE_TRIES, RunSpec, run_once
from rejoinder.evaluation.personas.settings import BenchmarkSettings
from rejoinder.evaluation.personas.speakers import Scripted
from rejoinder.evaluation.progress import Snapshot
from rejoinder.evaluation.statistics import Share
from rejoinder.evaluation.watch import Progress

from .kit import on_topic

PERSONA = load_persona("no-lists")
SETTINGS = BenchmarkSettings(sessions=40, updates=3, heldout=4, people=2)
PER_UPDATE = 6


@dataclass
class FakeLearner:
    """Makes a version of every ``PER_UPDATE`` main answers; the second one obeys."""

    gateway: FakeGateway
    batch_size: int | None = None
    served: list[int] = field(default_factory=list)
    ready: int = 0
    judging: int = 0
    lag: int = 0
    """Versions that the engine is behind."""
    mains_at_end: int | None = None
    """Main answers there were when somebody first saw that all updates are made."""

    async def progress(self) -> Progress:
        mains = [one for one in self.gateway.asked if one.headers["X-Turn-Type"] == "main"]
        self.gateway.version = len(mains) // PER_UPDATE
        if self.gateway.version >= SETTINGS.updates and self.mains_at_end is None:
            self.mains_at_end = len(mains)
        version = self.gateway.version
        return Progress(version, len(mains), self.ready, self.judging, version - self.lag)

    @asynccontextmanager
    async def serving(self, version: int) -> AsyncIterator[str]:
        self.served.append(version)
        yield f"default@{version}"

    async def divergence(self, completions: Sequence[str], temperature: float) -> float | None:
        assert temperature == SETTINGS.temperature
        return 0.5 * len(completions)

    async def judged(self) -> dict[str, int | None]:
        return {"chatcmpl-5": -1, "chatcmpl-6": None}


class Silent:
    def __init__(self) -> None:
        self.phases: set[str] = set()

    def show(self, snapshot: Snapshot) -> None:
        self.phases.add(snapshot.phase)


def answer_by_version(gateway: FakeGateway) -> None:
    def answer(asked: Asked) -> str:
        model = asked.body.get("model")
        version = int(model.partition("@")[2]) if model else gateway.version
        first = asked.body["messages"][0]["content"]
        return on_topic(first) if version >= 2 else "1. Eat\n2. Sleep"

    gateway.answer = answer


async def run(
    gateway: FakeGateway,
    settings: BenchmarkSettings = SETTINGS,
    learner_of: Callable[[ChatClient], Learner] | None = None,
    on_measured: Callable[[RunRecord], None] = lambda _: None,
) -> RunRecord:
    spec = RunSpec("binary", (PERSONA,), 3, settings, {"algorithm": "binary"})
    async with ChatClient(gateway.url) as client:
        learner = learner_of(client) if learner_of else FakeLearner(gateway)
        running = run_once(spec, client, learner, Scripted, Silent(), 0.005, on_measured)
        return await asyncio.wait_for(running, 300)


async def test_every_version_is_measured_until_the_updates_are_made(gateway: FakeGateway) -> None:
    answer_by_version(gateway)
    record = await run(gateway)
    assert record.ended is Ended.UPDATES
    assert record.updates >= 3
    versions = [one.version for one in record.measurements]
    assert versions[0] == 0
    assert versions == sorted(set(versions))
    assert versions[-1] == record.updates
    first, last = record.measurements[0], record.measurements[-1]
    assert first.personas["no-lists"].passed == Share(0, 4)
    assert first.personas["no-lists"].faults["list"] == 4
    assert last.personas["no-lists"].passed.value > 0.5
    assert last.divergence == 2.0
    assert 0 < first.sessions + last.sessions <= SETTINGS.sessions


async def test_the_first_and_the_last_held_out_answers_are_kept_to_be_read(
    gateway: FakeGateway,
) -> None:
    answer_by_version(gateway)
    record = await run(gateway)
    before, after = record.answers_before, record.answers_after
    assert [one.task for one in before] == [one.task for one in after]
    assert len(before) == SETTINGS.heldout
    assert {one.text.strip() for one in before} == {"1. Eat\n2. Sleep"}
    assert all("list" in one.faults for one in before)
    passed = record.measurements[-1].personas["no-lists"].passed
    assert passed == Share.count(not one.faults for one in after)


async def test_nobody_begins_to_talk_once_all_updates_are_made(gateway: FakeGateway) -> None:
    answer_by_version(gateway)
    learner = FakeLearner(gateway)
    settings = replace(SETTINGS, heldout=12, measure_every=100, answers=1)
    record = await run(gateway, settings, lambda _client: learner)
    assert learner.mains_at_end is not None
    in_flight = SETTINGS.people  # a session has two answers: the first and the farewell's
    assert len(record.sessions) <= learner.mains_at_end / 2 + in_flight


async def test_held_out_tasks_are_side_turns_with_the_same_words_and_seeds_each_time(
    gateway: FakeGateway,
) -> None:
    answer_by_version(gateway)
    record = await run(gateway)
    sides = [one for one in gateway.asked if one.headers["X-Turn-Type"] == "side"]
    by_model: dict[str, set[tuple[int, str]]] = {}
    for asked in sides:
        by_model.setdefault(asked.body["model"], set()).add((asked.body["seed"], asked.last))
    assert len(by_model) == len(record.measurements)
    assert len({frozenset(asked) for asked in by_model.values()}) == 1
    trained = {record.task for record in record.sessions}
    assert not trained & {text for asked in by_model.values() for _, text in asked}


async def test_drift_is_measured_on_a_part_of_many_answers(gateway: FakeGateway) -> None:
    record = await run(gateway, replace(SETTINGS, heldout=100, sessions=2))
    assert record.measurements[0].divergence == 0.5 * 25


async def test_measuring_may_skip_versions_but_never_the_last(gateway: FakeGateway) -> None:
    answer_by_version(gateway)
    record = await run(gateway, replace(SETTINGS, measure_every=100))
    assert [one.version for one in record.measurements] == [0, record.updates]


async def test_the_session_limit_ends_a_run(gateway: FakeGateway) -> None:
    gateway.answer = lambda _: "1. Eat\n2. Sleep"
    record = await run(gateway, replace(SETTINGS, sessions=5, updates=1000))
    assert record.ended is Ended.SESSIONS
    assert len(record.sessions) == 5


async def test_the_time_limit_ends_a_run(gateway: FakeGateway) -> None:
    record = await run(gateway, replace(SETTINGS, minutes=0.0))
    assert record.ended is Ended.TIME


async def test_a_run_may_end_once_its_personas_have_converged(gateway: FakeGateway) -> None:
    answer_by_version(gateway)
    settings = replace(SETTINGS, sessions=200, updates=1000, until_converged=True)
    record = await run(gateway, settings)
    assert record.ended is Ended.CONVERGED
    assert len(record.sessions) < 100
    took = sessions_to_converge(record.sessions, record.measured, "no-lists")
    assert took.happened
    assert took.length <= len(record.sessions)


async def test_who_never_converges_runs_to_a_limit(gateway: FakeGateway) -> None:
    gateway.answer = lambda _: "1. Eat\n2. Sleep"
    record = await run(gateway, replace(SETTINGS, sessions=20, updates=1000, until_converged=True))
    assert record.ended is Ended.SESSIONS


async def test_answers_that_give_no_sample_are_made_up_for_until_the_last_session(
    gateway: FakeGateway,
) -> None:
    """Guards against people who wait for samples that never come."""
    settings = replace(SETTINGS, sessions=25, updates=1000, answers=1, people=8)
    record = await run(gateway, settings, lambda _: FakeLearner(gateway, batch_size=8))
    assert record.ended is Ended.SESSIONS
    assert len(record.sessions) == 25


@pytest.mark.parametrize("kind", ["ready", "judging"])
async def test_people_wait_while_a_full_batch_waits_or_is_judged(
    gateway: FakeGateway, kind: str
) -> None:
    learner = replace(FakeLearner(gateway, batch_size=8), **{kind: 9})
    record = await run(gateway, replace(SETTINGS, minutes=0.005), lambda _: learner)
    assert record.ended is Ended.TIME
    assert record.sessions == ()


async def test_people_wait_while_a_version_is_taken_up(gateway: FakeGateway) -> None:
    learner = FakeLearner(gateway, batch_size=8, lag=1)
    record = await run(gateway, replace(SETTINGS, minutes=0.005), lambda _: learner)
    assert record.ended is Ended.TIME
    assert record.sessions == ()


async def test_people_do_not_wait_for_ever_for_a_version(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rejoinder.evaluation.personas.run.TAKE_UP_S", 0.0)
    settings = replace(SETTINGS, sessions=5, answers=1)
    record = await run(gateway, settings, lambda _: FakeLearner(gateway, batch_size=8, lag=1))
    assert record.sessions


async def test_what_is_being_asked_counts_towards_the_batch(gateway: FakeGateway) -> None:
    at_once = most = 0

    async def answer_later(asked: Asked) -> None:
        nonlocal at_once, most
        talks = asked.headers["X-Turn-Type"] == "main"
        at_once += talks
        most = max(most, at_once)
        await asyncio.sleep(0.02)
        at_once -= talks

    gateway.before_answer = answer_later
    settings = replace(SETTINGS, people=12, answers=1, minutes=0.01, measure_at_once=1)
    await run(gateway, settings, lambda _: FakeLearner(gateway, batch_size=4))
    assert most == 4


async def test_nobody_talks_while_a_version_is_measured(gateway: FakeGateway) -> None:
    answer_by_version(gateway)
    await run(gateway, replace(SETTINGS, heldout=12))
    kinds = [asked.headers["X-Turn-Type"] for asked in gateway.asked]
    first_side = kinds.index("side", 12)  # of the second measurement
    among = kinds[first_side : first_side + 12].count("main")
    # What people had begun to ask before they saw that one measures.
    assert among <= 2 * SETTINGS.people


async def test_verdicts_are_compared_with_the_rule(gateway: FakeGateway) -> None:
    gateway.answer = lambda _: "1. Eat\n2. Sleep"
    record = await run(gateway, replace(SETTINGS, sessions=4, updates=1000))
    assert record.agreement == Share(1, 1)
    assert record.no_verdicts == 1


async def test_of_a_running_gateway_only_the_live_version_is_asked(gateway: FakeGateway) -> None:
    gateway.version = 4
    gateway.answer = lambda _: "1. Eat\n2. Sleep"
    record = await run(gateway, replace(SETTINGS, sessions=3), RunningGateway)
    (measurement,) = record.measurements
    assert (measurement.version, measurement.served_by) == (4, (4,))
    assert (measurement.divergence, record.updates) == (None, 0)
    models = {a.body.get("model") for a in gateway.asked if a.headers["X-Turn-Type"] == "side"}
    assert models == {"default"}


async def test_a_start_that_cannot_be_measured_ends_the_run(gateway: FakeGateway) -> None:
    gateway.status = 500
    with pytest.raises(RejoinderError, match=r"the start could not be measured: .*500"):
        await run(gateway, replace(SETTINGS, heldout=2, sessions=2))
    assert len(gateway.asked) == 2 * MEASURE_TRIES


async def test_what_failed_is_asked_again_and_nothing_else(gateway: FakeGateway) -> None:
    failing = Failing(gateway, at={1, 3})
    record = await run(gateway, replace(SETTINGS, sessions=2), lambda _: failing)
    first = record.measurements[0]
    assert first.complete
    assert first.personas["no-lists"].passed.of == 4
    assert record.failed_requests == 2
    sides = [one for one in gateway.asked if one.headers["X-Turn-Type"] == "side"]
    assert len(sides) == len(record.measurements) * 4 + 2


async def test_a_measurement_that_keeps_failing_counts_for_nothing(gateway: FakeGateway) -> None:
    answer_by_version(gateway)
    second = range(4, 4 + 4 * MEASURE_TRIES)
    settings = replace(SETTINGS, sessions=200, updates=9)
    record = await run(gateway, settings, lambda _: Failing(gateway, at=second))
    marked = [number for number, one in enumerate(record.measurements) if not one.complete]
    assert marked == [1]
    assert record.measured[-1].version == record.updates, "the run has gone on"
    rates = record.measurements[1].personas["no-lists"]
    assert (rates.passed, rates.failed) == (Share(0, 0), 4)
    assert len(record.answers_after) == 4


async def test_the_record_so_far_is_there_after_each_measurement(gateway: FakeGateway) -> None:
    answer_by_version(gateway)
    kept: list[RunRecord] = []
    record = await run(gateway, on_measured=kept.append)
    assert [len(one.measurements) for one in kept] == list(range(1, len(record.measurements) + 1))
    assert {one.ended for one in kept} == {Ended.CUT}
    assert kept[-1].measurements == record.measurements


class Failing(FakeLearner):
    """The held-out requests with these numbers break off."""

    def __init__(self, gateway: FakeGateway, at: Collection[int]) -> None:
        super().__init__(gateway)
        scripted, asks = gateway.answer, itertools.count()

        def answer(asked: Asked) -> str:
            if asked.headers["X-Turn-Type"] == "side" and next(asks) in at:
                raise ConnectionResetError
            return scripted(asked)

        gateway.answer = answer
