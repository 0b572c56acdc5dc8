"""The API description of what goes past the framework, which describes its own routes only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI

from rejoinder.gateway.dialects.base import Dialect
from rejoinder.types import Json


def describe_dialects(app: FastAPI, spoken: Sequence[Dialect]) -> None:
    """Add the paths of all dialects."""
    described = app.openapi

    def openapi() -> Json:
        if app.openapi_schema is None:
            made: dict[str, Any] = described()
            bodies, components = msgspec.json.schema_components(
                [dialect.body for dialect in spoken], ref_template="#/components/schemas/{name}"
            )
            made["components"]["schemas"].update(components)
            for dialect, body in zip(spoken, bodies, strict=True):
                made["paths"][dialect.path] = {"post": _operation(dialect, body)}
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _operation(dialect: Dialect, body: Json) -> Json:
    return {
        "tags": ["turns"],
        "summary": dialect.summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": {"description": "An answer, or events with `stream: true`"}},
    }
