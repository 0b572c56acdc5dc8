"""Models, health and metrics: what operators and client programs ask for first."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from rejoinder.errors import EngineError
from rejoinder.gateway import metrics
from rejoinder.gateway.auth import Caller
from rejoinder.gateway.errors import ApiError, from_engine
from rejoinder.gateway.service import Service
from rejoinder.types import Json


def health_routes(service: Service) -> APIRouter:
    """Return ``/v1/models``, ``/healthz``, ``/readyz`` and ``/metrics``."""
    router = APIRouter()

    def check_key(request: Request) -> Caller:
        return service.keys.caller(dict(request.scope["headers"]))

    @router.get("/v1/models", tags=["models"])
    async def list_models(request: Request) -> Json:
        """List the names that requests may put into ``model``."""
        check_key(request)
        live = service.info.live.get(service.models.policy) if service.info else None
        return {
            "object": "list",
            "data": [_model(service, name, live) for name in service.models.names],
        }

    @router.get("/v1/models/{name:path}", tags=["models"])
    async def show_model(request: Request, name: str) -> Json:
        """Describe one model, or one version of it that the engine holds."""
        check_key(request)
        target = service.models.resolve(name)
        try:
            await service.check_version(target)
        except EngineError as error:
            raise from_engine(error) from error
        live = service.info.live.get(target.policy) if service.info else None
        return _model(service, name, live if target.version is None else target.version)

    @router.get("/healthz", tags=["operation"])
    async def health() -> Json:
        """Answer while the process runs."""
        return {"status": "ok"}

    @router.get("/readyz", tags=["operation"])
    async def readiness() -> Response:
        """Say whether requests can be served and recorded, and what is missing."""
        missing = problems(service)
        status = "ready" if not missing else "not ready"
        return JSONResponse({"status": status, "missing": missing}, 503 if missing else 200)

    @router.get("/metrics", tags=["operation"])
    async def metrics_text(request: Request) -> Response:
        """Prometheus metrics of all workers."""
        caller = check_key(request)
        if not service.keys.sees_totals(caller, service.config.gateway.metrics_keys):
            text = "metrics count all tenants together: gateway.metrics_keys names who may see them"
            raise ApiError(403, "metrics_not_allowed", text)
        return Response(service.metrics.render(), media_type=metrics.CONTENT_TYPE)

    return router


def problems(service: Service) -> dict[str, str]:
    """Return what stands against serving, by part; empty where nothing does."""
    found: dict[str, str] = {}
    if service.engine_problem is not None:
        found["engine"] = service.engine_problem
    if service.recorder.problem is not None:
        found["journal"] = service.recorder.problem
    if service.draining:
        found["gateway"] = "shutting down"
    return found


def _model(service: Service, name: str, version: int | None) -> Json:
    return {
        "id": name,
        "object": "model",
        "created": int(service.started_at),
        "owned_by": "rejoinder",
        "version": version,
        "context_length": service.context_length,
    }
