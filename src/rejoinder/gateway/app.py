"""The ASGI application: routes, errors, start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import rejoinder
from rejoinder.chat.renderer import Renderer
from rejoinder.config import Config
from rejoinder.engine.base import Engine
from rejoinder.errors import JournalError
from rejoinder.gateway import heartbeat
from rejoinder.gateway.auth import KeyRing, load_keys
from rejoinder.gateway.counting import Counts
from rejoinder.gateway.describing import describe_forms
from rejoinder.gateway.dialects.base import Form
from rejoinder.gateway.dialects.registry import countings, dialects
from rejoinder.gateway.endpoint import Endpoint
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.feedback import feedback_routes
from rejoinder.gateway.generation import ClientGone
from rejoinder.gateway.health import health_routes, problems
from rejoinder.gateway.kept import kept_routes
from rejoinder.gateway.recorder import GatewayJournal
from rejoinder.gateway.service import Service
from rejoinder.gateway.serving import Turns
from rejoinder.gateway.session_url import SESSION_PREFIX, without_session
from rejoinder.gateway.sessions import session_routes
from rejoinder.gateway.tally import SharedTally
from rejoinder.models.embedded import resolve_model
from rejoinder.models.tokenizer import ModelTokenizer, load_tokenizer

log = structlog.get_logger(__name__)


class Gateway(FastAPI):
    """An application whose hot path goes past the framework's layers.

    They cost more than a fifth of a request and give nothing that the endpoint does not do itself.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint], **settings: Any) -> None:
        super().__init__(**settings)
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":
            if scope["path"].startswith(SESSION_PREFIX):
                scope = without_session(scope)
            endpoint = self._endpoints.get(scope["path"])
            if endpoint is not None and scope["method"] == "POST":
                await endpoint(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def create_app(
    config: Config,
    engine: Engine,
    journal: GatewayJournal,
    *,
    tokenizer: ModelTokenizer | None = None,
    keys: KeyRing | None = None,
    renderer: Renderer | None = None,
    owner: str | None = None,
    siblings: Iterable[str] = (),
    shared: SharedTally | None = None,
) -> FastAPI:
    """Return the gateway's application.

    Engine and journal stay the caller's, who closes them after the application has stopped.

    Args:
        config: the resolved configuration.
        engine: what samples the answers.
        journal: what keeps them.
        tokenizer: the policy's; None loads the one of ``model.path``.
        keys: who may call; None reads ``REJOINDER_API_KEYS``.
        renderer: None takes the model's chat template.
        owner: this process's id in the journal; None makes one.
        siblings: owner ids of other workers of this gateway.
        shared: what these workers count together; None: there are no others.

    Raises:
        ConfigError: no keys where they are needed, or a model without tokenizer or template.
    """
    service = Service(
        config,
        engine,
        journal,
        tokenizer or load_tokenizer(resolve_model(config.model.path)),
        load_keys(config.gateway) if keys is None else keys,
        owner or heartbeat.new_owner(),
        renderer,
        shared,
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await heartbeat.announce(service, siblings)
        await service.probe_engine()
        log.info(
            "gateway ready",
            missing=problems(service),
            models=service.models.names,
            family=service.family.name,
        )
        tasks = [
            asyncio.create_task(heartbeat.watch_engine(service)),
            asyncio.create_task(heartbeat.beat(service)),
        ]
        for task in tasks:
            task.add_done_callback(_report_end)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            heartbeat.report(service, "stopped")
            service.close()

    spoken, counted = dialects(service.token_texts), countings()
    forms: tuple[Form, ...] = (*spoken, *counted)
    endpoints: dict[str, Endpoint] = {one.path: Turns(service, one) for one in spoken}
    endpoints |= {one.path: Counts(service, one) for one in counted}
    app = Gateway(endpoints, title="Rejoinder", version=rejoinder.__version__, lifespan=lifespan)
    app.state.service = service
    for path, endpoint in endpoints.items():
        app.router.routes.append(Route(path, endpoint, methods=["POST"]))
    app.include_router(health_routes(service))
    app.include_router(feedback_routes(service))
    app.include_router(kept_routes(service))
    app.include_router(session_routes(service))
    _add_error_handlers(app, service, {form.path: form for form in forms})
    describe_forms(app, forms)
    return app


def _report_end(task: asyncio.Task[None]) -> None:
    """Say so when a task that should run for ever has ended by a fault."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("a background task has ended", exc_info=error)


def _where_to(path: str, forms: Mapping[str, Form]) -> str:
    """Say where a request belongs; most go astray by a base URL with ``/v1`` too often or never.

    Clients of OpenAI want a base URL that ends with it, those of Anthropic add it themselves.
    """
    for meant in (path.replace("/v1/v1/", "/v1/", 1), f"/v1{path}"):
        if meant in forms:
            return f"did you mean {meant}? Look at the client's base URL"
    return "/openapi.json lists the paths"


def _add_error_handlers(app: FastAPI, service: Service, forms: Mapping[str, Form]) -> None:
    def respond(request: Request, error: ApiError) -> Response:
        service.count_error(error)
        form = forms.get(request.url.path)
        status, body = form.refusal(error) if form else (error.status, error.body())
        return Response(body, status, error.headers(), media_type="application/json")

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return respond(request, error)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, method = request.url.path, request.method
        known = {
            404: ("unknown_url", f"there is no {path} here; {_where_to(path, forms)}"),
            405: ("method_not_allowed", f"{method} is not possible on {path}"),
        }
        code, text = known.get(error.status_code, ("http_error", str(error.detail)))
        response = respond(request, ApiError(error.status_code, code, text))
        response.headers.update(error.headers or {})
        return response

    async def fault(request: Request, error: Exception) -> Response:
        service.note_error(f"internal error: {type(error).__name__}: {error}")
        text = "internal error; the log has the details"
        return respond(request, ApiError(500, "internal_error", text))

    async def unwritable(request: Request, error: Exception) -> Response:
        service.note_error(f"journal: {error}")
        text = f"it could not be recorded: {error}"
        return respond(request, ApiError(503, "journal_unavailable", text))

    async def gone(_request: Request, _error: Exception) -> Response:
        return Response(status_code=400)  # nobody reads it

    app.add_exception_handler(ApiError, refused)
    app.add_exception_handler(ClientGone, gone)
    app.add_exception_handler(JournalError, unwritable)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, fault)
