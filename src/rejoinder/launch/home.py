"""What the data directory holds beside the journal: the lock, the running configuration, logs."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import structlog

from rejoinder.config import Config
from rejoinder.errors import RejoinderError
from rejoinder.launch.toml import config_toml

log = structlog.get_logger(__name__)

PRIVATE = 0o700
"""Conversations are their owner's: nobody else may list or read the directory."""

_OTHERS = 0o077
_LOCK = "up.lock"


def ensure_home(config: Config) -> Path:
    """Create the data directory, readable by its owner only.

    Raises:
        RejoinderError: it cannot be created or written; the message names it.
    """
    home = config.home_path
    try:
        home.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
        # Each for itself: a directory that was there before may be open to others.
        for inner in (run_path(config), logs_path(config), config.versions_path):
            inner.mkdir(exist_ok=True, mode=PRIVATE)
    except OSError as error:
        raise RejoinderError(
            f"the data directory {home} cannot be used: {error.strerror}; choose another with "
            "home, --home or REJOINDER_HOME"
        ) from error
    return home


def exposure(config: Config) -> str | None:
    """Return what to change where other users of this machine may look into the data directory.

    It is told, not changed: the directory may be somebody's choice, or hold other things as well.
    """
    home = config.home_path
    if not home.is_dir() or not home.stat().st_mode & _OTHERS:
        return None
    return f"other users can look into the data directory: run `chmod go-rwx {home}`"


def warn_of_exposure(config: Config) -> None:
    """Log what ``exposure`` finds."""
    if (problem := exposure(config)) is not None:
        log.warning(problem)


def run_path(config: Config) -> Path:
    """Directory of files that matter only while the system runs."""
    return config.home_path / "run"


def logs_path(config: Config) -> Path:
    """Directory of the roles' logs."""
    return config.home_path / "logs"


def freeze_config(config: Config) -> Path:
    """Write the resolved configuration where restarted roles read it.

    Roles must agree for as long as the system runs: an edit of the user's file takes effect at
    the next start of the whole, never in whichever role happens to be restarted.
    """
    target = run_path(config) / "config.toml"
    partial = target.with_suffix(f".{os.getpid()}.new")
    partial.write_text(config_toml(config), "utf-8")
    partial.replace(target)
    return target


def starter(config: Config) -> int | None:
    """Return the process of the `rejoinder up` that holds the data directory, if one is there.

    It reads what `home_lock` wrote and does not try the lock, which would refuse a start at that
    very moment. After a crash another program may have the number since.
    """
    try:
        process = int((run_path(config) / _LOCK).read_text("utf-8"))
        os.kill(process, 0)
    except (OSError, ValueError):
        return None
    return process


@contextlib.contextmanager
def home_lock(config: Config) -> Iterator[None]:
    """Hold the data directory for one ``rejoinder up``; the kernel lets go of it at any end.

    Raises:
        RejoinderError: another one runs; the message says which.
    """
    with (run_path(config) / _LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise RejoinderError(
                f"`rejoinder up` runs already with {config.home_path} (process "
                f"{file.read().strip() or 'unknown'}): stop it, or give this one another --home"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
