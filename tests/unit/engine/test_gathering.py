"""Answers whose tokens come many at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from rejoinder.engine import gathering
from rejoinder.engine.base import TokenChunk
from rejoinder.engine.gathering import gathered, joined
from rejoinder.errors import EngineError, EngineTimeout
from rejoinder.types import FinishReason


def chunk(id_: int, version: int = 1, finish: FinishReason | None = None) -> TokenChunk:
    return TokenChunk([id_], [-float(id_)], version, None, finish)


async def answer(
    *chunks: TokenChunk, error: EngineError | None = None
) -> AsyncGenerator[TokenChunk, None]:
    for one in chunks:
        yield one
    if error is not None:
        raise error


async def test_the_first_token_comes_at_once_and_the_others_together():
    chunks = [chunk(1), chunk(2), chunk(3), chunk(4, finish=FinishReason.STOP)]
    first, rest = [one async for one in gathered(answer(*chunks))]
    assert first == chunks[0]
    assert rest == TokenChunk([2, 3, 4], [-2.0, -3.0, -4.0], 1, None, FinishReason.STOP)


async def test_tokens_of_two_versions_stay_apart():
    chunks = [chunk(1), chunk(2), chunk(3, 2), chunk(4, 2, FinishReason.LENGTH)]
    found = [one async for one in gathered(answer(*chunks))]
    assert [(one.ids, one.version) for one in found] == [([1], 1), ([2], 1), ([3, 4], 2)]


async def test_what_came_before_an_error_comes_before_it():
    found = gathered(answer(chunk(1), chunk(2), error=EngineTimeout("late")))
    assert (await anext(found)).ids == [1]
    assert (await anext(found)).ids == [2]
    with pytest.raises(EngineTimeout):
        await anext(found)


async def test_tokens_that_come_slowly_are_not_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gathering, "GATHER_S", 0.0)
    chunks = [chunk(1), chunk(2), chunk(3, finish=FinishReason.STOP)]
    assert [one async for one in gathered(answer(*chunks))] == chunks


async def test_an_answer_that_is_given_up_is_closed():
    closed = []

    async def endless() -> AsyncGenerator[TokenChunk, None]:
        try:
            while True:
                yield chunk(1)
        finally:
            closed.append(True)

    chunks = gathered(endless())
    await anext(chunks)
    await chunks.aclose()
    assert closed


def test_what_came_before_an_error_is_joined_and_comes_before_it():
    def broken():
        yield TokenChunk([1], [-0.5], 0)
        yield TokenChunk([2], [-0.5], 0)
        raise EngineError("broken")

    made = joined(broken())
    assert next(made).ids == [1, 2]
    with pytest.raises(EngineError, match="broken"):
        next(made)


def test_nothing_is_joined_to_the_end_of_an_answer():
    """What an engine sends behind it is no part of the answer, whatever it is."""
    end = TokenChunk([2], [-0.5], 0, None, FinishReason.STOP)
    made = list(joined([TokenChunk([1], [-0.5], 0), end, TokenChunk([3], [-0.5], 0)]))
    assert [one.ids for one in made] == [[1, 2], [3]]
    assert made[0].finish_reason is FinishReason.STOP
