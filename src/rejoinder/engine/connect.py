"""The engine that the configuration names, as this process reaches it."""

from __future__ import annotations

from rejoinder.config import Config, ScriptedEngineConfig
from rejoinder.engine.base import Engine
from rejoinder.engine.client import HttpEngine
from rejoinder.engine.scripted import ScriptedEngine
from rejoinder.models.embedded import resolve_model
from rejoinder.net import http_url


def connect_engine(config: Config) -> Engine:
    """Return the engine: a scripted one lives in this process, a real one is called over HTTP."""
    if isinstance(config.engine, ScriptedEngineConfig):
        return ScriptedEngine(resolve_model(config.model.path), config.model.policy, config.engine)
    return HttpEngine(http_url(config.engine.host, config.engine.port))
