"""Following the registry: new versions are taken up, and bad ones never stop serving."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from rejoinder.config import ScriptedEngineConfig
from rejoinder.engine import follow
from rejoinder.engine.base import VersionSource
from rejoinder.engine.follow import LiveFollower, follow_live
from rejoinder.engine.scripted import ScriptedEngine
from rejoinder.errors import JournalError, UnknownVersion
from tiny_model import POLICY, source, until


class Picky(ScriptedEngine):
    """Refuses some versions."""

    def __init__(self, model: Path, bad: set[int]) -> None:
        super().__init__(model, POLICY, ScriptedEngineConfig())
        self.bad = bad
        self.tried: list[int] = []

    async def load(self, source: VersionSource, *, live: bool) -> None:
        self.tried.append(source.version)
        if source.version in self.bad:
            raise UnknownVersion(f"version {source.version} is broken")
        await super().load(source, live=live)


@pytest.fixture
def reports() -> list[tuple[int | None, str]]:
    return []


@pytest.fixture
def report(reports):
    return lambda source, problem: reports.append((source and source.version, problem))


async def test_a_new_live_version_is_loaded_once(tiny_models: list[Path], report, reports):
    engine = Picky(tiny_models[0], bad=set())
    live = [source(tiny_models[1], 1)]
    follower = LiveFollower(engine, lambda: live, report)
    await follower.check()
    await follower.check()
    assert engine.tried == [1]
    live[:] = [source(tiny_models[2], 2)]
    await follower.check()
    assert (await engine.info()).live == {POLICY: 2}
    assert reports == []


async def test_a_rollback_is_followed(tiny_models: list[Path], report):
    engine = Picky(tiny_models[0], bad=set())
    live = [source(tiny_models[2], 2)]
    follower = LiveFollower(engine, lambda: live, report)
    await follower.check()
    live[:] = [source(tiny_models[1], 1)]
    await follower.check()
    assert (await engine.info()).live == {POLICY: 1}


async def test_a_bad_version_is_reported_and_retried_ever_more_rarely(
    tiny_models: list[Path], report, reports, monkeypatch: pytest.MonkeyPatch
):
    now = [100.0]
    monkeypatch.setattr(follow.time, "monotonic", lambda: now[0])
    engine = Picky(tiny_models[0], bad={1})
    follower = LiveFollower(engine, lambda: [source(tiny_models[1], 1)], report)
    waits = []
    for _ in range(40):
        before = len(engine.tried)
        await follower.check()
        if len(engine.tried) > before:
            waits.append(now[0])
        now[0] += 0.5
    assert [b - a for a, b in itertools.pairwise(waits)] == [1.0, 2.0, 4.0, 8.0]
    assert reports[0] == (1, "version 1 is broken")
    assert (await engine.info()).live == {POLICY: 0}


async def test_a_newer_version_after_a_bad_one_is_tried_at_once(tiny_models: list[Path], report):
    engine = Picky(tiny_models[0], bad={1})
    live = [source(tiny_models[1], 1)]
    follower = LiveFollower(engine, lambda: live, report)
    await follower.check()
    live[:] = [source(tiny_models[2], 2)]
    await follower.check()
    assert engine.tried == [1, 2]
    assert (await engine.info()).live == {POLICY: 2}


class Chain:
    """Versions that each come from the one before; asked what is behind one."""

    def __init__(self, models: list[Path]) -> None:
        self.models = models
        self.asked: list[tuple[int, int | None]] = []
        self.away = False

    def source(self, version: int) -> VersionSource:
        return source(self.models[version % 3], version)

    def __call__(self, wanted: VersionSource, serving: int | None) -> list[VersionSource]:
        self.asked.append((wanted.version, serving))
        if self.away:
            raise JournalError("the database is away")
        return [self.source(number) for number in range(wanted.version - 1, -1, -1)]


async def test_the_first_version_behind_a_bad_one_that_loads_serves_until_it_loads(
    tiny_models: list[Path], report, reports, monkeypatch: pytest.MonkeyPatch
):
    now = [100.0]
    monkeypatch.setattr(follow.time, "monotonic", lambda: now[0])
    chain = Chain(tiny_models)
    engine = Picky(tiny_models[0], bad={4, 3})
    follower = LiveFollower(engine, lambda: [chain.source(4)], report, chain)
    await follower.check()
    assert engine.tried == [4, 3, 2]
    assert (await engine.info()).live == {POLICY: 2}
    assert [version for version, _ in reports] == [4], "what status shows is about the live one"
    now[0] += 5
    await follower.check()
    assert engine.tried == [4, 3, 2, 4], "those behind it are tried once"
    engine.bad.clear()
    now[0] += 5
    await follower.check()
    assert (await engine.info()).live == {POLICY: 4}
    assert chain.asked == [(4, 0)]


async def test_a_served_version_stays_where_the_next_one_is_bad(tiny_models: list[Path], report):
    chain = Chain(tiny_models)
    engine = Picky(tiny_models[0], bad={4})
    live = [chain.source(3)]
    follower = LiveFollower(engine, lambda: live, report, chain)
    await follower.check()
    live[:] = [chain.source(4)]
    await follower.check()
    assert engine.tried == [3, 4]
    assert (await engine.info()).live == {POLICY: 3}


async def test_a_rollback_to_a_bad_version_does_not_leave_the_one_it_left(
    tiny_models: list[Path], report
):
    chain = Chain(tiny_models)
    engine = Picky(tiny_models[0], bad={2})
    live = [chain.source(4)]
    follower = LiveFollower(engine, lambda: live, report, chain)
    await follower.check()
    live[:] = [chain.source(2)]
    await follower.check()
    assert (await engine.info()).live == {POLICY: 1}
    live[:] = [chain.source(4)]
    await follower.check()
    assert (await engine.info()).live == {POLICY: 4}, "it was taken up before, and serves no more"


async def test_a_registry_that_is_away_when_a_version_is_bad_is_asked_again(
    tiny_models: list[Path], report, reports, monkeypatch: pytest.MonkeyPatch
):
    now = [100.0]
    monkeypatch.setattr(follow.time, "monotonic", lambda: now[0])
    chain = Chain(tiny_models)
    chain.away = True
    engine = Picky(tiny_models[0], bad={2})
    follower = LiveFollower(engine, lambda: [chain.source(2)], report, chain)
    await follower.check()
    assert (await engine.info()).live == {POLICY: 0}
    assert reports[-1] == (None, "the registry cannot be asked: the database is away")
    chain.away = False
    now[0] += 5
    await follower.check()
    assert (await engine.info()).live == {POLICY: 1}


@pytest.mark.parametrize(
    "problem",
    [JournalError("the database is away"), KeyError("the database is away")],
    ids=["journal", "another library's"],
)
async def test_a_registry_that_cannot_be_asked_is_reported_once_and_asked_again(
    tiny_models: list[Path], report, reports, problem: Exception
):
    engine = Picky(tiny_models[0], bad=set())
    down = True

    def ask() -> list[VersionSource]:
        if down:
            raise problem
        return [source(tiny_models[1], 1)]

    follower = LiveFollower(engine, ask, report)
    await follower.check()
    await follower.check()
    assert reports == [(None, f"the registry cannot be asked: {problem}")]
    down = False
    await follower.check()
    assert (await engine.info()).live == {POLICY: 1}


async def test_following_ends_when_the_engine_is_closed(tiny_models: list[Path], report):
    engine = Picky(tiny_models[0], bad=set())
    live = [source(tiny_models[1], 1)]
    following = asyncio.create_task(follow_live(LiveFollower(engine, lambda: live, report), 0.001))
    await until(lambda: engine.tried == [1])
    await engine.close()
    live[:] = [source(tiny_models[2], 2)]
    await asyncio.wait_for(following, 10)
