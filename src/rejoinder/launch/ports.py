"""Binding ports before anything else starts, so that a taken port is one line and no ruin."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping, Sequence

from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.launch.holders import Holder, holder_of

BACKLOG = 2048
"""Connections that wait while a role is being restarted."""


class PortTaken(RejoinderError):
    """Another program listens there; the message names ports, who has them, and the remedy.

    Args:
        host: as for ``bind_port``.
        ports: which are taken there, by configuration key.
    """

    def __init__(self, host: str, ports: Mapping[str, int]) -> None:
        self.host = host
        self.ports = ports
        super().__init__(_told(host, ports))


def all_taken(faults: Sequence[PortTaken]) -> PortTaken | RejoinderError:
    """Return one error for several: one remedy where they are of one host."""
    if len({fault.host for fault in faults}) == 1:
        merged = {key: port for fault in faults for key, port in fault.ports.items()}
        return PortTaken(faults[0].host, merged)
    return RejoinderError("; ".join(map(str, faults)))


def bind_port(host: str, port: int, key: str) -> socket.socket:
    """Bind and listen.

    Args:
        host: address or name; an IPv6 address without brackets.
        port: 0 picks a free one.
        key: the configuration key of the port, for messages.

    Raises:
        PortTaken: another program has the port.
        ConfigError: the host cannot be bound here, or the port needs other rights.
    """
    section = key.rsplit(".", 1)[0]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ConfigError(
            f"{section}.host {host!r} is no address of this machine: {error}"
        ) from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # At once: with SO_REUSEADDR two programs may bind one port until the first one listens.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _explain(error, host, port, key) from error
    return listener


def bound_port(listener: socket.socket) -> int:
    """Return the port a socket is bound to."""
    port: int = listener.getsockname()[1]
    return port


def adopt_port(descriptor: int) -> socket.socket:
    """Return the listening socket that a parent process has handed over."""
    return socket.socket(fileno=descriptor)


def _explain(error: OSError, host: str, port: int, key: str) -> RejoinderError:
    section = key.rsplit(".", 1)[0]
    if error.errno == errno.EADDRINUSE:
        return PortTaken(host, {key: port})
    if error.errno == errno.EACCES:
        return ConfigError(
            f"{key} = {port} needs the rights of an administrator: choose 1024 or higher"
        )
    return ConfigError(f"{section}.host {host!r}, port {port} cannot be bound: {error.strerror}")


def _told(host: str, ports: Mapping[str, int]) -> str:
    """Say which ports are taken, by whom, and what to do."""
    by_holder: dict[Holder | None, list[int]] = {}
    for port in dict.fromkeys(ports.values()):
        by_holder.setdefault(holder_of(host, port), []).append(port)
    taken = ", and ".join(
        f"{_counted(numbers)} on {host} {'is' if len(numbers) == 1 else 'are'} taken by {_name(by)}"
        for by, numbers in by_holder.items()
    )
    free = "a free port" if len(ports) == 1 else "free ports"
    stop = "stop it" if len(by_holder) == 1 else "stop them"
    return f"{taken}: {stop}, or set {' and '.join(ports)} to {free} (0 picks one)"


def _counted(ports: Sequence[int]) -> str:
    noun = "port" if len(ports) == 1 else "ports"
    return f"{noun} {' and '.join(map(str, ports))}"


def _name(holder: Holder | None) -> str:
    if holder is None:
        return "another program"
    if holder.home is None:
        return f"another program (process {holder.process})"
    what = "`rejoinder up`" if holder.is_up else "a Rejoinder"
    return f"{what} with {holder.home} (process {holder.process})"
