"""Binding ports before anything else starts, so that a taken port is one line and no ruin."""

from __future__ import annotations

import errno
import socket

from rejoinder.errors import ConfigError, RejoinderError

BACKLOG = 2048
"""Connections that wait while a role is being restarted."""


class PortTaken(RejoinderError):
    """Another program listens there; the message names the port and the remedy."""


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
        return PortTaken(
            f"port {port} on {host} is taken by another program: stop it, or set {key} to a free "
            "port (0 picks one)"
        )
    if error.errno == errno.EACCES:
        return ConfigError(
            f"{key} = {port} needs the rights of an administrator: choose 1024 or higher"
        )
    return ConfigError(f"{section}.host {host!r}, port {port} cannot be bound: {error.strerror}")
