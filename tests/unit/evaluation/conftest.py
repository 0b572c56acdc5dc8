"""What tests of evaluations share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fake_gateway import FakeGateway


@pytest.fixture
async def gateway() -> AsyncIterator[FakeGateway]:
    """A running scripted gateway."""
    fake = FakeGateway()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", fake.chat)
    app.router.add_get("/v1/models", fake.models)
    async with TestServer(app) as server:
        fake.url = str(server.make_url("")).rstrip("/")
        yield fake
