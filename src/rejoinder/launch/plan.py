"""Which roles a configuration needs on one machine, with their ports bound."""

from __future__ import annotations

from rejoinder.config import Config, TorchEngineConfig
from rejoinder.errors import ConfigError
from rejoinder.launch.base import RoleSpec
from rejoinder.launch.ports import bind_port, bound_port


def bind_gateway(config: Config) -> tuple[Config, RoleSpec]:
    """Bind the gateway's port; returns the configuration with the port it really got.

    Raises:
        RejoinderError: the port is taken or cannot be bound.
    """
    listener = bind_port(config.gateway.host, config.gateway.port, "gateway.port")
    gateway = config.gateway.model_copy(update={"port": bound_port(listener)})
    return config.model_copy(update={"gateway": gateway}), RoleSpec("gateway", listener)


def bind_engine(config: Config) -> tuple[Config, RoleSpec]:
    """Same as ``bind_gateway``, for the engine.

    Raises:
        RejoinderError: the port is taken or cannot be bound.
        ConfigError: the configured engine is no process of its own.
    """
    if not isinstance(config.engine, TorchEngineConfig):
        raise ConfigError(
            f"engine.kind = {config.engine.kind!r} lives inside the gateway and cannot learn: run "
            "`rejoinder gateway` alone, or set engine.kind = 'torch'"
        )
    listener = bind_port(config.engine.host, config.engine.port, "engine.port")
    engine = config.engine.model_copy(update={"port": bound_port(listener)})
    return (
        config.model_copy(update={"engine": engine}),
        RoleSpec("engine", listener, stops_last=True),
    )


def bind_all(config: Config) -> tuple[Config, list[RoleSpec]]:
    """Bind every port and return the four roles in the order of their start.

    Raises:
        RejoinderError: a port is taken; those bound before it are free again.
    """
    config, engine = bind_engine(config)
    try:
        config, gateway = bind_gateway(config)
    except Exception:
        if engine.listener is not None:
            engine.listener.close()
        raise
    return config, [engine, gateway, RoleSpec("judge"), RoleSpec("trainer")]
