"""How much a weight update is felt: gaps between tokens around each take-up of a new version.

Eight people talk for ten minutes while the system judges and trains. For every take-up, the longest
gap between two tokens of one stream is set against the 99th percentile of gaps while training
without a take-up. No request may fail or be cut, and no role may end: requests without a token wait
for an engine that starts again, so that its end would show in no request. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop_process import LoopProcess
from outcome import at_most, finish
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
Span = tuple[float, float]
"""Begin and end, as ``time.time()``."""


@dataclass(slots=True)
class Heard:
    """Everything the people saw."""

    requests: int = 0
    failed: list[str] = field(default_factory=list)
    truncated: int = 0
    tokens: int = 0
    gaps: list[Span] = field(default_factory=list)
    """Times of two tokens that follow each other in one stream."""
    first_waits: list[float] = field(default_factory=list)
    """Seconds from a request to its first token."""

    def add(self, answer: Answer) -> None:
        """Note one answer."""
        self.requests += 1
        if answer.error is not None:
            self.failed.append(answer.error)
        elif not answer.whole:
            self.truncated += 1
        self.tokens += len(answer.arrivals)
        self.gaps += itertools.pairwise(answer.arrivals)
        self.first_waits += [at - answer.started for at in answer.arrivals[:1]]


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
        figures = figures_of(heard, seen, _committed(config), _steps(config))
    ended = [f"the {event.name} {event.cause}" for event in loop.ended]
    whole = not heard.failed and not heard.truncated and not ended
    enough = figures["take_ups"] >= WANTED and figures["gaps_while_training"] > 0
    passed = whole and enough and at_most(BAR_MS, [figures["excess_ms"]])
    finish("update_gap", {**figures, "roles_ended": ended, "bar_ms": BAR_MS}, passed=passed)


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


def figures_of(
    heard: Heard, seen: dict[int, float], committed: dict[int, float], steps: Sequence[Span]
) -> dict[str, Any]:
    """Return what was heard around take-ups and otherwise.

    Args:
        heard: by the people.
        seen: when the engine was first seen to serve each version.
        committed: when each version became live in the registry.
        steps: when there was training.
    """
    windows = {
        version: (committed[version] - BEFORE_S, at + AFTER_S)
        for version, at in sorted(seen.items())
        if version in committed
    }
    longest = {
        version: max((_length(gap) for gap in heard.gaps if _meet(gap, window)), default=0.0)
        for version, window in windows.items()
    }
    quiet = [
        _length(gap)
        for gap in heard.gaps
        if any(_meet(gap, step) for step in steps)
        and not any(_meet(gap, window) for window in windows.values())
    ]
    p99 = _p99(quiet)
    excess = 1000 * (max(longest.values(), default=0.0) - p99)
    return {
        "requests": heard.requests,
        "tokens": heard.tokens,
        "failed": len(heard.failed),
        "failures": sorted(set(heard.failed))[:5],
        "truncated": heard.truncated,
        "take_ups": len(windows),
        "steps": len(steps),
        "gaps_while_training": len(quiet),
        "median_gap_ms": _median_ms(_length(gap) for gap in heard.gaps),
        "median_first_token_ms": _median_ms(heard.first_waits),
        "longest_first_token_ms": round(1000 * max(heard.first_waits, default=0.0), 1),
        "p99_gap_while_training_ms": round(1000 * p99, 1),
        "longest_gap_at_take_up_ms": {v: round(1000 * gap, 1) for v, gap in longest.items()},
        "excess_ms": round(excess, 1),
    }


def _meet(gap: Span, span: Span) -> bool:
    """Whether a gap lies in a span in part. A long one may begin in it and end long after it."""
    return gap[1] >= span[0] and gap[0] <= span[1]


def _length(gap: Span) -> float:
    return gap[1] - gap[0]


def _median_ms(seconds: Iterable[float]) -> float:
    known = list(seconds)
    return round(1000 * statistics.median(known), 1) if known else math.nan


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else 0.0


def _committed(config: Config) -> dict[int, float]:
    """Return when each trained version became live in the registry."""
    rows = _rows(config, "SELECT version, live_at FROM policy_versions WHERE version > 0")
    return {int(version): float(at) for version, at in rows if at is not None}


def _steps(config: Config) -> list[Span]:
    rows = _rows(config, "SELECT started_at, finished_at FROM steps")
    return [(float(begin), float(end)) for begin, end in rows]


def _rows(config: Config, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(Path(config.home) / "journal.db") as connection:
        return connection.execute(query).fetchall()


if __name__ == "__main__":
    main()
