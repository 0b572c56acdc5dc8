"""The system of a run ends with the run, and whoever waits for that is told before it does."""

from __future__ import annotations

import asyncio
from types import TracebackType

import pytest

from rejoinder.config import Config
from rejoinder.evaluation import system as system_module
from rejoinder.evaluation.system import with_system
from rejoinder.launch.system import LocalSystem


class System:
    """Starts nothing; tells in ``events`` what was asked of it."""

    events: list[str]

    def __init__(self, _config: Config) -> None: ...

    def __enter__(self) -> System:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        self.events.append("stopped")

    def start(self) -> None:
        self.events.append("started")

    def wait_until_ready(self, *_: object) -> None: ...

    def watch(self) -> list[object]:
        return []


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    System.events = []
    monkeypatch.setattr(system_module, "LocalSystem", System)
    return System.events


def test_the_end_is_told_before_roles_are_stopped(events: list[str]) -> None:
    async def work(_system: LocalSystem) -> int:
        return 3

    assert asyncio.run(with_system(Config(), work, lambda: events.append("told"))) == 3
    assert events == ["started", "told", "stopped"]


def test_it_is_told_too_where_a_run_is_broken_off(events: list[str]) -> None:
    """Ctrl-C was answered by silence until the last role had compiled what it was at."""

    async def work(_system: LocalSystem) -> None:
        raise asyncio.CancelledError

    async def whole() -> None:
        await with_system(Config(), work, lambda: events.append("told"))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(whole())
    assert events == ["started", "told", "stopped"]
