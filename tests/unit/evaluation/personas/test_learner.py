"""Calls to the system that learns: an outage is waited for, a refusal is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fake_gateway import FakeGateway
from rejoinder.config import Config
from rejoinder.engine.base import EngineInfo
from rejoinder.errors import EngineError, EngineUnavailable, RejoinderError
from rejoinder.evaluation.client import ChatClient
from rejoinder.evaluation.personas.learner import OwnSystem, RunningGateway, persist
from rejoinder.evaluation.watch import Progress


class Serving:
    """An engine that says which version it answers with."""

    def __init__(self, version: int | None) -> None:
        self._live = {} if version is None else {"default": version}

    async def info(self) -> EngineInfo:
        return EngineInfo("fake", "hash", 64, [0], [], live=self._live, loaded={})


class View:
    """A journal that knows of the third version."""

    def progress(self) -> Progress:
        return Progress(version=3, trained=48, ready=2, judging=1)


@pytest.mark.parametrize("served", [2, 3, None])
async def test_a_system_of_ones_own_tells_which_version_answers(served: int | None) -> None:
    learner = OwnSystem(Config(), Serving(served), View())  # type: ignore[arg-type]
    assert await learner.progress() == Progress(3, 48, 2, 1, served)


class Call:
    """Fails with the errors given, one after the other, and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self._errors: Iterator[Exception] = iter(errors)
        self.times = 0

    async def __call__(self) -> str:
        self.times += 1
        for error in self._errors:
            raise error
        return "done"


async def test_what_passes_is_waited_for() -> None:
    call = Call(EngineUnavailable("gone"), TimeoutError(), EngineUnavailable("gone"))
    assert await persist(call, patience_s=60, retry_s=0) == "done"
    assert call.times == 4


async def test_an_answer_that_is_no_text_is_waited_for_like_one_that_is_no_json() -> None:
    call = Call(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "cut in two"))
    assert await persist(call, patience_s=60, retry_s=0) == "done"


async def test_a_gateway_whose_version_is_no_number_is_none(gateway: FakeGateway) -> None:
    gateway.version = "3"  # type: ignore[assignment]
    async with ChatClient(gateway.url) as client:
        with pytest.raises(RejoinderError, match="does not answer as a gateway does"):
            await RunningGateway(client).progress()


async def test_what_does_not_pass_ends_as_an_error_for_people() -> None:
    with pytest.raises(RejoinderError, match="EngineUnavailable: gone"):
        await persist(Call(EngineUnavailable("gone")), patience_s=0)


async def test_another_failure_is_not_tried_again() -> None:
    call = Call(EngineError("no such weights"))
    with pytest.raises(EngineError, match="no such weights"):
        await persist(call, patience_s=60)
    assert call.times == 1


async def test_a_gateway_that_refuses_is_no_outage(gateway: FakeGateway) -> None:
    async with ChatClient(f"{gateway.url}/nowhere") as client:
        with pytest.raises(RejoinderError, match="404"):
            await RunningGateway(client).progress()
