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
        ConfigError: gateway and engine are to have the same port.
        RejoinderError: ports are taken, all of which it names, or one cannot be bound; those that
            were bound are free again.
    """
    bound, taken, ours = list[RoleSpec](), list[PortTaken](), set[int]()
    with ExitStack() as undo:
        for bind in (bind_engine, bind_gateway):
            try:
                config, role = bind(config)
            except PortTaken as error:  # the other one may be taken, too: both are told at once
                if config.gateway.port in ours:
                    raise ConfigError(
                        f"gateway.port and engine.port are both {config.gateway.port}: set one of "
                        "them to another port (0 picks a free one)"
                    ) from error
                taken.append(error)
                continue
            assert role.listener is not None
            undo.callback(role.listener.close)
            ours.add(bound_port(role.listener))
            bound.append(role)
        if taken:
            raise all_taken(taken)
        undo.pop_all()
    return config, [*bound, RoleSpec("judge"), RoleSpec("trainer")]
