"""Directories that are whole or not there, whenever the power goes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from rejoinder.types import Json

MARKER = "rejoinder.json"
"""Written last: a directory without it is not complete, however it came to be."""
PARTIAL = ".partial-"
"""What the names of unfinished directories begin with."""


@contextlib.contextmanager
def durable_directory(
    target: Path, marker: Json, confirm: Callable[[], None] = lambda: None
) -> Iterator[Path]:
    """Yield a new directory to be filled, which takes its place when all of it is on disk.

    Order: files, flush each, marker, flush it and the directory, rename, flush the parent. An
    incomplete directory that stands there already is replaced, a complete one never.

    Args:
        target: where it will stand.
        marker: what the marker says of it.
        confirm: called right before it takes its place; what it raises keeps it from doing so.

    Raises:
        FileExistsError: a complete directory stands there.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    made = _partial(target)
    made.mkdir()
    try:
        yield made
        for path in made.rglob("*"):
            flush(path)
        (made / MARKER).write_text(json.dumps(marker, indent=1) + "\n", "utf-8")
        flush(made / MARKER)
        flush(made)
        confirm()
        _take_place(made, target)
        flush(target.parent)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def discard(directory: Path) -> None:
    """Delete a directory, if it is there; a kill in between leaves none that looks complete."""
    doomed = _partial(directory)
    with contextlib.suppress(FileNotFoundError):
        directory.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _partial(target: Path) -> Path:
    """Return a name of its own: in containers two writers may have one process id."""
    return target.with_name(f"{PARTIAL}{target.name}-{os.urandom(4).hex()}")


def _take_place(made: Path, target: Path) -> None:
    if target.exists() and read_marker(target) is None:
        discard(target)
    try:
        made.rename(target)  # the kernel refuses it where another process has put one meanwhile
    except OSError as error:
        if read_marker(target) is None:
            raise
        raise FileExistsError(f"{target} is there already, and complete") from error


def read_marker(directory: Path) -> Json | None:
    """Return what the marker says, or None where the directory is not complete."""
    try:
        marker: Json = json.loads((directory / MARKER).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return marker


def flush(path: Path) -> None:
    """Wait until a file's content, or a directory's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
