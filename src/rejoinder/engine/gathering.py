"""Tokens that are not looked at one by one may come together: each frame costs both its sides."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing

import msgspec

from rejoinder.engine.base import TokenChunk
from rejoinder.errors import EngineError

GATHER_S = 0.1
"""How long tokens are gathered. What an answer that breaks off leaves may lack so much."""


def joined(chunks: Iterable[TokenChunk]) -> Iterator[TokenChunk]:
    """Join successive chunks of one answer, as far as one version sampled them, up to its end.

    Raises:
        EngineError: as ``chunks`` does, behind all that came before it.
    """
    run: list[TokenChunk] = []
    try:
        for chunk in chunks:
            if run and (chunk.version != run[0].version or run[-1].finish_reason is not None):
                yield _join(run)
                run = []
            run.append(chunk)
    except EngineError:
        if run:
            yield _join(run)
        raise
    if run:
        yield _join(run)


async def gathered(chunks: AsyncGenerator[TokenChunk, None]) -> AsyncGenerator[TokenChunk, None]:
    """Pass an answer on in few chunks: its first at once, then what has come in ``GATHER_S``.

    Raises:
        EngineError: as ``chunks`` does, behind all that came before it.
    """
    waiting: list[TokenChunk] = []
    due = 0.0
    async with aclosing(chunks):
        try:
            async for chunk in chunks:
                waiting.append(chunk)
                now = time.monotonic()
                if now >= due or chunk.finish_reason is not None:
                    ready, waiting, due = waiting, [], now + GATHER_S
                    for one in joined(ready):
                        yield one
        except EngineError:
            for one in joined(waiting):
                yield one
            raise


def _join(chunks: Sequence[TokenChunk]) -> TokenChunk:
    if len(chunks) == 1:
        return chunks[0]
    return msgspec.structs.replace(
        chunks[-1],
        ids=[id_ for chunk in chunks for id_ in chunk.ids],
        logprobs=[value for chunk in chunks for value in chunk.logprobs],
        client=[one for chunk in chunks for one in chunk.client or ()] or None,
        cached_tokens=chunks[0].cached_tokens,
    )
