"""Whether a process that told its id still runs, as every room asks it."""

from __future__ import annotations

import contextlib
import os
import socket
from functools import cache
from pathlib import Path

import psutil

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


@cache
def process_space() -> str:
    """Return the name of what gives out process ids here: equal only where ids mean the same.

    A host's name alone does not tell two containers apart that share it, nor two machines that
    were given the same one; so this start of the kernel and the name space of ids are part of it,
    where the system has them.
    """
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(_BOOT.read_text("ascii").strip())
    with contextlib.suppress(OSError):
        parts.append(str(_NAMESPACE.readlink()))
    return " ".join(parts)


def runs(pid: int, begun_by: float) -> bool:
    """Return whether a process of this machine still runs.

    Args:
        pid: its id, which may have been given to another process meanwhile; that one is younger.
        begun_by: a time (seconds since the epoch) by which the process meant had begun.
    """
    try:
        process = psutil.Process(pid)
        born: float = process.create_time()
        # Killed, but its parent has not asked for its end: in containers often nobody ever does.
        ended = process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return _is_hidden(pid)
    return born <= begun_by and not ended


def _is_hidden(pid: int) -> bool:
    """Return whether it is there after all, for the kernel: of others' /proc may show nothing."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return False  # one of ours would have been seen: it ended in between
