"""Directories that are whole or not there, whenever the power goes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rejoinder.types import Json

MARKER = "rejoinder.json"
"""Written last: a directory without it is not complete, however it came to be."""
PARTIAL = ".partial-"
"""What the names of unfinished directories begin with."""


@contextlib.contextmanager
def durable_directory(target: Path, marker: Json) -> Iterator[Path]:
    """Yield a new directory to be filled, which takes its place when all of it is on disk.

    Order: files, flush each, marker, flush it and the directory, rename, flush the parent. A
    directory that stands there already is replaced.

    Args:
        target: where it will stand.
        marker: what the marker says of it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    made = target.parent / f"{PARTIAL}{target.name}-{os.getpid()}"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    try:
        yield made
        for path in made.rglob("*"):
            flush(path)
        (made / MARKER).write_text(json.dumps(marker, indent=1) + "\n", "utf-8")
        flush(made / MARKER)
        flush(made)
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)
        flush(target.parent)
    finally:
        shutil.rmtree(made, ignore_errors=True)


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
