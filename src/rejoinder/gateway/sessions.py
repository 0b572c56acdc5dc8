"""``POST /v1/sessions/done``: a client's conversation is over, and no further answer is asked for.

Most clients say so with their last request. Some learn it only afterwards, when a person begins
anew or deletes a chat.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.identity import read_identity
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.service import Service
from rejoinder.types import Scope


class SessionEnd(BaseModel):
    """Which session has been closed."""

    model_config = ConfigDict(frozen=True)

    session_id: str
    """Its internal id, as in ``X-Rejoinder-Session-Id``."""


def session_routes(service: Service) -> APIRouter:
    """Return the route."""
    router = APIRouter()

    @router.post("/v1/sessions/done", tags=["sessions"])
    async def end_session(request: Request, user: str = "") -> SessionEnd:
        """Close the session that header or URL names; a later request of it opens it again."""
        headers = dict(request.scope["headers"])
        caller = service.keys.caller(headers)
        with service.admission.admit(caller.key):
            named = read_identity(headers, TurnRequest(messages=()), service.config.gateway)
            if named.session is None:
                text = "name the session: X-Session-Id, or /s/{session}/v1/sessions/done"
                raise ApiError(400, "invalid_value", text, "session_id")
            scope = Scope(caller.tenant, caller.key, user)
            found = await asyncio.get_running_loop().run_in_executor(
                service.reads, service.journal.find_session, scope, named.session
            )
            if found is None:
                raise ApiError(404, "session_not_found", f"there is no session {named.session!r}")
            await asyncio.wrap_future(service.journal.close_session(found, "done"))
        return SessionEnd(session_id=found)

    return router
