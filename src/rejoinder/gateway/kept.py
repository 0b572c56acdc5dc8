"""``/v1/responses/{id}``: responses that were stored, for those who created them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from rejoinder.gateway.earlier import read_stored
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.service import Service
from rejoinder.types import Scope


class DeletedResponse(BaseModel):
    """What became of a deletion."""

    id: str
    object: str = "response"
    deleted: bool = True


def kept_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["turns"])

    @contextmanager
    def admitted(request: Request) -> Iterator[Scope]:
        """Hold a place of the caller's: reads share threads with the linking of all callers."""
        caller = service.keys.caller(dict(request.scope["headers"]))
        with service.admission.admit(caller.key):
            yield Scope(caller.tenant, caller.key)

    @router.get("/v1/responses/{response_id}")
    async def read(response_id: str, request: Request) -> Response:
        """Return a stored response as it was sent."""
        journal = service.journal
        with admitted(request) as scope:
            if request.query_params.get("stream") == "true":
                text = "a stored response is not streamed again: read it whole"
                raise ApiError(400, "unsupported_parameter", text, "stream")
            body = await read_stored(service, lambda: journal.read_response(scope, response_id))
        if body is None:
            raise _unknown(response_id)
        return Response(body, media_type="application/json")

    @router.delete("/v1/responses/{response_id}")
    async def delete(response_id: str, request: Request) -> DeletedResponse:
        """Forget a stored response. The record of its turn stays, as of any other."""
        with admitted(request) as scope:
            gone = await asyncio.wrap_future(service.journal.delete_response(scope, response_id))
        if not gone:
            raise _unknown(response_id)
        return DeletedResponse(id=response_id)

    return router


def _unknown(response_id: str) -> ApiError:
    text = f"Response with id {response_id!r} not found: it was not stored, or is another key's"
    return ApiError(404, "response_not_found", text, "response_id")
