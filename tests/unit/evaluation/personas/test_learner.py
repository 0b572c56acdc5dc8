"""Calls to the system that learns: an outage is waited for, a refusal is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fake_gateway import FakeGateway
from rejoinder.errors import EngineError, EngineUnavailable, RejoinderError
from rejoinder.evaluation.client import ChatClient
from rejoinder.evaluation.personas.learner import RunningGateway, persist


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
