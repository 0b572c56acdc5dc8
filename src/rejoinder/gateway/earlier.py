"""Stored responses: read for requests that name one instead of sending its conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog

from rejoinder.chat.history import History
from rejoinder.errors import EngineError
from rejoinder.gateway.auth import Caller
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.json_body import check_count
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.service import Service
from rejoinder.types import Scope

log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Continued:
    """A request with the whole conversation that it goes on with."""

    request: TurnRequest
    history: History
    turn_id: str
    """Of the answer that it goes on from."""


async def go_on(service: Service, request: TurnRequest, caller: Caller) -> Continued:
    """Put the conversation of the named response before the request's own messages.

    Raises:
        ApiError: 400, the caller's tenant and key have no such response; 503, the journal cannot
            be read.
        ContextLengthExceeded: the whole has more messages than the context has tokens.
    """
    scope = Scope(caller.tenant, caller.key)
    return await read_stored(service, lambda: _go_on(service, request, scope))


async def read_stored(service: Service, read: Callable[[], T]) -> T:
    """Call what reads the journal, off the event loop.

    Raises:
        ApiError: 503, the journal cannot be read; or what ``read`` raises, which may be one.
        EngineError: as above.
    """
    try:
        return await asyncio.get_running_loop().run_in_executor(service.reads, read)
    except (ApiError, EngineError, RecursionError):
        raise
    except Exception as error:  # whatever a journal fails by
        log.exception("a stored response could not be read")
        service.note_error(f"journal: {error}")
        text = f"the stored response could not be read: {error}"
        raise ApiError(503, "journal_unavailable", text) from error


def _go_on(service: Service, request: TurnRequest, scope: Scope) -> Continued:
    response_id = request.continues or ""
    earlier = service.journal.read_earlier(scope, response_id)
    if earlier is None:
        raise ApiError(
            400,
            "previous_response_not_found",
            f"Previous response with id {response_id!r} not found: it was not stored, was deleted, "
            "or is another key's",
            "previous_response_id",
        )
    own = request.own_messages
    messages = (*request.messages[:own], *earlier.messages, *request.messages[own:])
    check_count(messages, service.context_length)
    history = History(messages)
    _ = history.chains  # made here, off the event loop
    return Continued(replace(request, messages=messages), history, earlier.turn_id)
