"""Who listens on a taken port, as far as Linux tells: which process, and of which Rejoinder.

A port that answers says nothing of whose it is, and asking it would wait. What a process has open
is told by ``/proc``, to its own user; elsewhere nobody is found.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

_Address = IPv4Address | IPv6Address
_PROC = Path("/proc")
_LISTENING = "0A"
_LOCK, _JOURNAL = ("run", "up.lock"), "journal.db"
"""Files of a data directory that ``rejoinder up``, and each role, has open all the time."""
_MADE_AT_START = ("run", "policies")
"""Directories beside a journal that ``ensure_home`` makes: another program's has none of them."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that listens on a port."""

    process: int
    home: Path | None
    """Data directory of the Rejoinder that it is; None: it is none, or does not show it."""
    is_up: bool = False
    """Whether it is ``rejoinder up``, which all roles end with."""


def holder_of(host: str, port: int) -> Holder | None:
    """Return who is in the way of listening there, the process to be stopped first; or None.

    Args:
        host: address or name that the port could not be bound on: the same port of another address
            is another's business.
        port: taken.
    """
    sockets = {f"socket:[{inode}]" for inode in _inodes(_resolved(host), port)}
    found = list(_holders(sockets)) if sockets else []
    # The roles have inherited the socket of the `up` that would start them again.
    found.sort(key=lambda one: (not one.is_up, one.home is None, one.process))
    return found[0] if found else None


def _inodes(wanted: _Address, port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "self" / "net" / table).read_text("ascii").splitlines()[1:]
        except OSError:  # not Linux, or no IPv6
            continue
        for line in lines:
            _, local, _, state, *rest = line.split()
            address, _, number = local.rpartition(":")
            if state == _LISTENING and int(number, 16) == port:
                there = _listed(address)
                if there == wanted or there.is_unspecified or wanted.is_unspecified:
                    yield rest[5]


def _resolved(host: str) -> _Address:
    """Return the address that ``bind_port`` takes for a host."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return _unmapped(ip_address(str(found[0][4][0]).partition("%")[0]))


def _listed(address: str) -> _Address:
    """Read an address as the tables have it: words of four bytes in the machine's order."""
    packed = bytes.fromhex(address)
    if sys.byteorder == "little":
        packed = b"".join(packed[at : at + 4][::-1] for at in range(0, len(packed), 4))
    return _unmapped(ip_address(packed))


def _unmapped(address: _Address) -> _Address:
    """Return the address of IPv4 that one of IPv6 stands for."""
    return getattr(address, "ipv4_mapped", None) or address


def _holders(sockets: set[str]) -> Iterator[Holder]:
    for directory in _PROC.glob("[0-9]*"):
        opened = set(_opened(directory))
        if opened & sockets:
            yield _holder(int(directory.name), [Path(name) for name in opened])


def _opened(process: Path) -> Iterator[str]:
    """Yield what a process has open; nothing where it is another user's, or has just ended."""
    with contextlib.suppress(OSError):
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(link.readlink())


def _holder(process: int, opened: list[Path]) -> Holder:
    for path in opened:
        if path.parts[-2:] == _LOCK:
            return Holder(process, path.parents[1], is_up=True)
    for path in opened:
        if path.name == _JOURNAL and all((path.parent / d).is_dir() for d in _MADE_AT_START):
            return Holder(process, path.parent)
    return Holder(process, None)
