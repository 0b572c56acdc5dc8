"""How every benchmark ends: one JSON object as the last line, and an exit code that says it passed.

Also which code was measured: figures of an interrupted run may only be joined with, or shown for,
those of the same code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import psutil

import rejoinder

UNKNOWN = "unknown"
"""The revision where git cannot tell which code runs; it equals nothing, not even itself."""
_ROOT = Path(__file__).resolve().parent.parent
_CODE = ("src", "benchmarks")


def finish(name: str, figures: Mapping[str, Any], *, passed: bool | None) -> NoReturn:
    """Print a benchmark's last line and end the program.

    Args:
        name: of the benchmark.
        figures: what it measured; a number that is not finite is printed as null.
        passed: whether every bar was met; None where the run was too small to have a verdict.
    """
    line = {"benchmark": name, **figures, "passed": passed, **_code(), "machine": machine()}
    print(json.dumps(_finite(line), allow_nan=False), flush=True)
    sys.exit(1 if passed is False else 0)


def at_least(bar: float, values: Iterable[float]) -> bool:
    """Whether there are values and all reach the bar; nan does not."""
    known = list(values)
    return bool(known) and all(value >= bar for value in known)


def at_most(bar: float, values: Iterable[float]) -> bool:
    """Whether there are values and none is above the bar; nan counts as above."""
    known = list(values)
    return bool(known) and all(value <= bar for value in known)


def machine() -> dict[str, object]:
    """Return what the figures were measured on."""
    return {
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def revision(root: Path = _ROOT, package: Path = Path(rejoinder.__file__)) -> str:
    """Return the commit of the code that runs, with a digest of what differs from it.

    Args:
        root: the checkout that holds the benchmarks.
        package: a file of the package that is imported. One from another place is not what the
            checkout's commit says.
    """
    if not package.resolve().is_relative_to(root / "src"):
        return UNKNOWN
    try:
        commit = _git(root, "rev-parse", "HEAD").decode().strip()
        changed = _git(root, "diff", "HEAD", "--", *_CODE)
        new = _git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *_CODE)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    digest = hashlib.sha256(changed)
    for file in filter(None, new.split(b"\0")):
        digest.update(file + (root / os.fsdecode(file)).read_bytes())
    return f"{commit}-dirty-{digest.hexdigest()[:8]}" if changed or new else commit


def same_code(known: str, now: str) -> bool:
    """Whether two revisions are surely the same code."""
    return known == now != UNKNOWN


def _git(root: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


REVISION = revision()
"""Of this run: taken when it began, for a checkout may change while a benchmark runs for hours."""


def _code() -> dict[str, str]:
    at_end = revision()
    changed = {} if at_end == REVISION else {"revision_at_end": at_end}
    return {"revision": REVISION, **changed}


def _finite(value: Any) -> Any:
    """Return the same without numbers that JSON cannot write."""
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
