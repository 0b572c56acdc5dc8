"""``make demo``: one run per seed, shown as it goes, with one JSON object at the end."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from rejoinder.config import Config
from rejoinder.evaluation.live_view import LiveView
from rejoinder.evaluation.report import show_result, summary
from rejoinder.evaluation.run import DemoResult, run_once
from rejoinder.evaluation.settings import DEFAULT, DemoSettings
from rejoinder.types import Json


def run_demo(
    config: Config,
    settings: DemoSettings = DEFAULT,
    seeds: Sequence[int] = (0,),
    output: Path = Path("rejoinder-demo"),
    keep: Path | None = None,
    console: Console | None = None,
) -> Json:
    """Run the demonstration for each seed, print everything, and return the last line's object.

    Args:
        config: gives model, device and engine; the demonstration sets the rest and never touches
            the data directory that it names.
        settings: of every run.
        seeds: one run each.
        output: directory of the PNG curves.
        keep: keeps the systems' data there, one directory per seed; None: deleted at the end.
        console: where to show it, standard output by default; works without a terminal too.

    Raises:
        RejoinderError: a role cannot start, or keeps ending.
    """
    console = console or Console()
    results: list[DemoResult] = []
    pngs: list[Path] = []
    for seed in seeds:
        with _home(keep, seed) as place, LiveView(console) as view:
            result = asyncio.run(run_once(config, settings, seed, place, view))
        png = (output / f"seed-{seed}.png").absolute()
        show_result(result, settings, console, png)
        results.append(result)
        pngs.append(png)
    found = summary(results, settings, pngs)
    # Straight to the file: the console would wrap a long line.
    print(json.dumps(found), file=console.file, flush=True)
    return found


@contextmanager
def _home(keep: Path | None, seed: int) -> Iterator[Path]:
    if keep is not None:
        yield keep / f"seed-{seed}"
    else:
        with tempfile.TemporaryDirectory(prefix="rejoinder-demo-") as made:
            yield Path(made)
