"""``POST /v1/feedback``: what a person thinks of an answer, in a number."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.json_body import parse_object
from rejoinder.gateway.reading import read_body
from rejoinder.gateway.request import MAX_CHOICES
from rejoinder.gateway.service import Service
from rejoinder.types import Scope


class Feedback(BaseModel):
    """A score for one answer: either ``score`` or ``thumb``."""

    model_config = ConfigDict(extra="forbid")

    completion_id: Annotated[str, Field(min_length=1, max_length=128)]
    """The ``id`` of the completion."""
    choice: Annotated[int, Field(ge=0, lt=MAX_CHOICES)] = 0
    """Which of its ``n`` answers."""
    score: Literal[-1, 0, 1] | None = None
    thumb: Literal["up", "down"] | None = None
    text: Annotated[str, Field(max_length=10_000)] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Feedback:
        if (self.score is None) == (self.thumb is None):
            raise ValueError("give either score (-1, 0, 1) or thumb ('up', 'down')")
        return self

    @property
    def value(self) -> int:
        """The score."""
        if self.score is not None:
            return self.score
        return 1 if self.thumb == "up" else -1


class FeedbackAnswer(BaseModel):
    """What became of it."""

    completion_id: str
    outcome: str
    """``accepted``; or kept without effect: ``late_feedback``, the answer has trained already, or
    ``never_trains``, it was cut off, is a side turn, or was asked anew."""


def parse_feedback(data: bytes) -> Feedback:
    """Decode and check a body.

    Raises:
        ApiError: 400, not JSON or not a score; ``param`` names the field.
    """
    raw = parse_object(data)
    try:
        return Feedback.model_validate(raw)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        param = ".".join(map(str, fault["loc"])) or None
        said = fault["msg"].removeprefix("Value error, ")
        text = f"{param}: {said}" if param else said
        raise ApiError(400, "invalid_value", text, param) from error


def feedback_routes(service: Service) -> APIRouter:
    """Return the route."""
    router = APIRouter()

    schema = {"application/json": {"schema": Feedback.model_json_schema()}}

    @router.post(
        "/v1/feedback",
        tags=["feedback"],
        openapi_extra={"requestBody": {"required": True, "content": schema}},
    )
    async def give_feedback(request: Request) -> FeedbackAnswer:
        """Score an answer by its completion id; outranks the judge until the answer trains."""
        # Not read by the framework, which would take a body of any size from anybody.
        headers = dict(request.scope["headers"])
        caller = service.keys.caller(headers)
        with service.admission.admit(caller.key):
            data = await read_body(request.receive, headers, service.config.gateway)
            feedback = parse_feedback(data)
            scope = Scope(caller.tenant, caller.key)
            written = service.journal.add_feedback(
                scope, feedback.completion_id, feedback.choice, feedback.value, feedback.text
            )
            result = await asyncio.wrap_future(written)  # until then it fills the queue
        service.metrics.feedback.labels(result.outcome).inc()
        if result.outcome == "unknown":
            raise ApiError(
                404,
                "completion_not_found",
                f"there is no answer {feedback.choice} of a completion {feedback.completion_id!r}",
                "completion_id",
            )
        return FeedbackAnswer(completion_id=feedback.completion_id, outcome=result.outcome)

    return router
