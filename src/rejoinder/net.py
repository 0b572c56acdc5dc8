"""Hosts and addresses as every room reads and writes them."""

from __future__ import annotations

import ipaddress

from rejoinder.config import LOOPBACK

_EVERY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound here


def http_url(host: str, port: int) -> str:
    """Return ``http://host:port``; an IPv6 address gets its brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def reachable(host: str) -> str:
    """Return where this machine reaches what listens on ``host``, which may mean every address."""
    return _EVERY.get(host, host)


def is_local(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
