"""How much a weight update is felt: gaps between tokens around each take-up of a new version.

Eight people talk for ten minutes while the system judges and trains. For every take-up, the longest
gap between two tokens of one stream is set against the 99th percentile of gaps while training
without a take-up. No request may fail or be cut. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop_process import LoopProcess, machine
from rejoinder.config import Config, GatewayConfig, TorchEngineConfig, TrainerConfig
from rejoinder.engine.client import HttpEngine
from rejoinder.errors import EngineError
from talkers import Answer, Talkers

BAR_MS = 300.0
WANTED = 5
LONGEST = 3.0
"""If too few versions come, the run goes on for this many times the minutes asked for."""
POLL_S = 0.1
BEFORE_S, AFTER_S = 0.5, 1.0
"""The window around a take-up begins before the step's commit and ends after the switch."""


@dataclass(slots=True)
class Heard:
    """Everything the people saw."""

    requests: int = 0
    failed: list[str] = field(default_factory=list)
    truncated: int = 0
    tokens: int = 0
    gaps: list[tuple[float, float]] = field(default_factory=list)
    """(time of the later token, seconds since the one before in the same stream)."""

    def add(self, answer: Answer) -> None:
        """Note one answer."""
        self.requests += 1
        if answer.error is not None:
            self.failed.append(answer.error)
        elif not answer.whole:
            self.truncated += 1
        self.tokens += len(answer.arrivals)
        for earlier, later in zip(answer.arrivals, answer.arrivals[1:], strict=False):
            self.gaps.append((later, later - earlier))


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="rejoinder-gap-") as home:
        config = Config(
            home=home,
            log_level="warning",
            gateway=GatewayConfig(port=0),
            engine=TorchEngineConfig(port=0, max_running=arguments.people),
            trainer=TrainerConfig(batch_size=arguments.batch, learning_rate=1e-5),
        )
        with LoopProcess(config) as loop:
            heard, seen = asyncio.run(_measure(loop, arguments))
        figures = _figures(heard, seen, _committed(config), _steps(config))
    print(json.dumps({"benchmark": "update_gap", **figures, "machine": machine()}))
    sys.exit(0 if figures["passed"] else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--people", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8, help="samples per training step")
    parser.add_argument("--max-tokens", type=int, default=64)
    return parser.parse_args()


async def _measure(
    loop: LoopProcess, arguments: argparse.Namespace
) -> tuple[Heard, dict[int, float]]:
    """Let people talk; returns what they saw, and when the engine first served each version."""
    heard, seen = Heard(), dict[int, float]()
    talkers = Talkers(loop.address, arguments.people, arguments.max_tokens, heard.add)
    talking = asyncio.create_task(talkers.talk())
    begin = time.monotonic()
    engine = HttpEngine(loop.engine_address)
    told = 0.0
    try:
        while not talking.done():
            loop.check()
            with suppress(EngineError):
                version = (await engine.info()).live[loop.config.model.policy]
                seen.setdefault(version, time.time())
            minutes = (time.monotonic() - begin) / 60
            enough = len(seen) > WANTED or minutes >= arguments.minutes * LONGEST
            if minutes >= arguments.minutes and enough:
                break
            if minutes >= told:
                told = minutes + 0.5
                line = (
                    f"{minutes:.1f} min: version {max(seen, default=0)}, {heard.requests} answers"
                )
                print(f"{line}, {len(heard.failed)} failed", flush=True)
            await asyncio.sleep(POLL_S)
        talkers.stop()
        await talking
    finally:
        talking.cancel()
        await engine.close()
    return heard, seen


def _figures(
    heard: Heard,
    seen: dict[int, float],
    committed: dict[int, float],
    steps: Sequence[tuple[float, float]],
) -> dict[str, object]:
    windows = {
        version: (committed[version] - BEFORE_S, at + AFTER_S)
        for version, at in sorted(seen.items())
        if version in committed
    }
    longest = {
        version: max((gap for at, gap in heard.gaps if begin <= at <= end), default=0.0)
        for version, (begin, end) in windows.items()
    }
    quiet = [
        gap
        for at, gap in heard.gaps
        if any(begin <= at <= end for begin, end in steps)
        and not any(begin <= at <= end for begin, end in windows.values())
    ]
    p99 = _p99(quiet)
    worst = max(longest.values(), default=0.0)
    excess = 1000 * (worst - p99)
    return {
        "requests": heard.requests,
        "tokens": heard.tokens,
        "failed": len(heard.failed),
        "failures": sorted(set(heard.failed))[:5],
        "truncated": heard.truncated,
        "take_ups": len(windows),
        "steps": len(steps),
        "median_gap_ms": round(1000 * statistics.median(gap for _, gap in heard.gaps), 1),
        "p99_gap_while_training_ms": round(1000 * p99, 1),
        "longest_gap_at_take_up_ms": {v: round(1000 * gap, 1) for v, gap in longest.items()},
        "excess_ms": round(excess, 1),
        "bar_ms": BAR_MS,
        "passed": (
            not heard.failed
            and not heard.truncated
            and len(windows) >= WANTED
            and bool(quiet)
            and excess <= BAR_MS
        ),
    }


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else 0.0


def _committed(config: Config) -> dict[int, float]:
    """Return when each trained version became live in the registry."""
    rows = _rows(config, "SELECT version, live_at FROM policy_versions WHERE version > 0")
    return {int(version): float(at) for version, at in rows if at is not None}


def _steps(config: Config) -> list[tuple[float, float]]:
    rows = _rows(config, "SELECT started_at, finished_at FROM steps")
    return [(float(begin), float(end)) for begin, end in rows]


def _rows(config: Config, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(Path(config.home) / "journal.db") as connection:
        return connection.execute(query).fetchall()


if __name__ == "__main__":
    main()
