"""Which roles a configuration needs on one machine, with their ports bound."""

from __future__ import annotations

from contextlib import ExitStack

from rejoinder.config import Config, TorchEngineConfig
from rejoinder.errors import ConfigError
from rejoinder.launch.base import RoleSpec
from rejoinder.launch.ports import PortTaken, all_taken, bind_port, bound_port


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
        RejoinderError: ports are taken, all of which it names, or one cannot be bound; those that
            were bound are free again.
    """
    bound, taken = list[RoleSpec](), list[PortTaken]()
    with ExitStack() as undo:
        for bind in (bind_engine, bind_gateway):
            try:
                config, role = bind(config)
            except PortTaken as error:  # the other one may be taken, too: both are told at once
                taken.append(error)
                continue
            assert role.listener is not None
            undo.callback(role.listener.close)
            bound.append(role)
        if taken:
            raise all_taken(taken)
        undo.pop_all()
    return config, [*bound, RoleSpec("judge"), RoleSpec("trainer")]
