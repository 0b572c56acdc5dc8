"""``make demo``: one run per seed, shown as it goes, with one JSON object at the end."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from rejoinder.evaluation.demo import DemoResult, run_demo
from rejoinder.evaluation.live_view import LiveView
from rejoinder.evaluation.report import show_result, summary
from rejoinder.evaluation.settings import DemoSettings
from rejoinder.types import Json


def demonstrate(
    settings: DemoSettings,
    seeds: Sequence[int],
    home: Path | None,
    output: Path,
    console: Console,
) -> Json:
    """Run the demonstration for each seed, print everything, and return the last line's object.

    Args:
        settings: of every run.
        seeds: one run each.
        home: keeps the system's data, one directory per seed; None: deleted at the end.
        output: directory of the PNG curves.
        console: where to show it; works without a terminal too.

    Raises:
        SystemFailed: the system did not start or ended by itself.
    """
    results: list[DemoResult] = []
    pngs: list[Path] = []
    for seed in seeds:
        with _home(home, seed) as place, LiveView(console) as view:
            result = asyncio.run(run_demo(settings, seed, place, view))
        png = (output / f"demo-seed-{seed}.png").absolute()
        show_result(result, settings, console, png)
        results.append(result)
        pngs.append(png)
    found = summary(results, settings, pngs)
    # Straight to the file: the console would wrap a long line.
    print(json.dumps(found), file=console.file, flush=True)
    return found


@contextmanager
def _home(home: Path | None, seed: int) -> Iterator[Path]:
    if home is not None:
        yield home / f"seed-{seed}"
    else:
        with tempfile.TemporaryDirectory(prefix="rejoinder-demo-") as made:
            yield Path(made)
