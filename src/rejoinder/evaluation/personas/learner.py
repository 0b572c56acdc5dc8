"""What a run needs to know of the system that learns, beside talking to it over HTTP.

The benchmark starts a system of its own and may look into it; of a gateway that runs already it
knows what any client can ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from json import JSONDecodeError
from typing import Protocol, TypeVar

import aiohttp
import sqlalchemy as sa

from rejoinder.config import Config
from rejoinder.engine.base import Engine
from rejoinder.errors import EngineBusy, EngineTimeout, EngineUnavailable, RejoinderError
from rejoinder.evaluation.client import ChatClient
from rejoinder.evaluation.drift import start_divergence
from rejoinder.evaluation.watch import JournalView, Progress
from rejoinder.types import BASE_VERSION, Json

PATIENCE_S = 300.0
"""How long an outage may last: a role that was killed has long been restarted by then."""
RETRY_S = 1.0
_PASSING = (
    aiohttp.ClientError,
    TimeoutError,
    JSONDecodeError,
    UnicodeDecodeError,
    EngineBusy,
    EngineTimeout,
    EngineUnavailable,
    sa.exc.OperationalError,
)
_T = TypeVar("_T")


async def persist(
    call: Callable[[], Awaitable[_T]], patience_s: float = PATIENCE_S, retry_s: float = RETRY_S
) -> _T:
    """Call until it succeeds.

    Raises:
        RejoinderError: it has failed for ``patience_s``, or in a way that does not pass.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return await call()
        except _PASSING as error:
            if _is_refusal(error) or time.monotonic() >= deadline:
                raise RejoinderError(f"{type(error).__name__}: {error}") from error
        await asyncio.sleep(retry_s)


def _is_refusal(error: Exception) -> bool:
    return (
        isinstance(error, aiohttp.ClientResponseError)
        and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        and error.status != HTTPStatus.TOO_MANY_REQUESTS
    )


class Learner(Protocol):
    """See the module's text."""

    @property
    def batch_size(self) -> int | None:
        """Samples of an update; people wait while so many are ready or come. None: unknown."""
        ...

    async def progress(self) -> Progress:
        """Return where learning stands."""
        ...

    def serving(self, version: int) -> AbstractAsyncContextManager[str]:
        """Keep a version served meanwhile, and give the model name that asks for it."""
        ...

    async def divergence(self, completions: Sequence[str], temperature: float) -> float | None:
        """Return how far answers are from the start weights, None where nobody can say.

        Args:
            completions: the answers' completion ids.
            temperature: with which they were sampled.
        """
        ...

    async def judged(self) -> dict[str, int | None]:
        """Return the verdicts by completion id, where they can be read; None: no verdict."""
        ...


class OwnSystem:
    """A system that this run has started: implements ``Learner`` with its journal and engine."""

    def __init__(self, config: Config, engine: Engine, journal: JournalView) -> None:
        self.batch_size: int | None = config.trainer.batch_size
        self._policy = config.model.policy
        self._engine = engine
        self._journal = journal

    async def progress(self) -> Progress:
        """See ``Learner``."""
        return await persist(self._progress)

    async def _progress(self) -> Progress:
        info = await self._engine.info()
        return replace(self._journal.progress(), served=info.live.get(self._policy))

    @asynccontextmanager
    async def serving(self, version: int) -> AsyncIterator[str]:
        """See ``Learner``. Loaded on purpose, a version stays while newer ones go live."""
        await persist(lambda: self._load(version))
        try:
            yield f"{self._policy}@{version}"
        finally:
            await persist(lambda: self._engine.unload(self._policy, version))

    async def _load(self, version: int) -> None:
        await self._engine.load(self._journal.source(version), live=False)

    async def divergence(self, completions: Sequence[str], temperature: float) -> float | None:
        """See ``Learner``."""
        return await persist(lambda: self._divergence(completions, temperature))

    async def _divergence(self, completions: Sequence[str], temperature: float) -> float | None:
        sampled = [self._journal.sampled_ids(one) for one in completions]
        if not any(ids.answer for ids in sampled):
            return None
        return await start_divergence(self._engine, self._policy, sampled, temperature)

    async def judged(self) -> dict[str, int | None]:
        """See ``Learner``."""
        return await persist(self._judged)

    async def _judged(self) -> dict[str, int | None]:
        return self._journal.judged()


class RunningGateway:
    """A gateway that others run: implements ``Learner`` with what any client can ask."""

    batch_size: int | None = None

    def __init__(self, client: ChatClient) -> None:
        self._client = client

    async def progress(self) -> Progress:
        """See ``Learner``. Samples are not known here."""
        model = await self._model()
        return Progress(model.get("version") or BASE_VERSION, trained=0, ready=0)

    @asynccontextmanager
    async def serving(self, version: int) -> AsyncIterator[str]:  # noqa: ARG002
        """See ``Learner``. Only the live version can be asked, whatever it is by then."""
        model = await self._model()
        yield str(model["id"])

    async def divergence(self, completions: Sequence[str], temperature: float) -> float | None:  # noqa: ARG002
        """See ``Learner``."""
        return None

    async def judged(self) -> dict[str, int | None]:
        """See ``Learner``."""
        return {}

    async def _model(self) -> Json:
        models = await persist(lambda: self._client.get("/v1/models"))
        match models:
            case {"data": [{"id": str()} as model, *_]} if isinstance(
                model.get("version"), int | None
            ):
                return dict(model)
            case _:
                raise RejoinderError("/v1/models does not answer as a gateway does")
