"""The API description of what goes past the framework, which describes its own routes only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI

from rejoinder.gateway.dialects.base import Form
from rejoinder.types import Json


def describe_forms(app: FastAPI, forms: Sequence[Form]) -> None:
    """Add the paths of all APIs."""
    described = app.openapi

    def openapi() -> Json:
        if app.openapi_schema is None:
            made: dict[str, Any] = described()
            bodies, components = msgspec.json.schema_components(
                [form.body for form in forms], ref_template="#/components/schemas/{name}"
            )
            made["components"]["schemas"].update(components)
            for form, body in zip(forms, bodies, strict=True):
                made["paths"][form.path] = {"post": _operation(form, body)}
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _operation(form: Form, body: Json) -> Json:
    return {
        "tags": ["turns"],
        "summary": form.summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {"description": "As the API says; events with `stream: true`"},
            "default": {"description": "A refusal in the API's own form"},
        },
    }
