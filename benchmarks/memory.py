"""Whether the gateway's memory stays bounded: many short sessions, resident bytes sampled.

Each session has two turns and never comes back, so whatever the gateway keeps of it is a leak. The
highest sample after the first 20,000 sessions is set against the one then. The last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Iterator, Sequence

import uvloop

from gateway_process import GatewayProcess, scripted
from http_load import Connection
from outcome import finish

CHAT = "/v1/chat/completions"
CLIENTS = 32
BASELINE = 20_000
"""Sessions after which caches and pools are full."""
BAR_PERCENT = 5.0
ANSWER = "A short answer, as people like it."
MEGABYTE = 1 << 20


async def session(connection: Connection, number: int) -> None:
    """Hold one short conversation; all its text is its own."""
    messages = [{"role": "user", "content": f"Question {number}: what is {number} times {number}?"}]
    for reply in ("Thanks, that helps.", ""):
        body = {"model": "default", "messages": messages, "max_tokens": 16}
        answer = await connection.request("POST", CHAT, json.dumps(body).encode())
        if answer.status != 200:
            raise SystemExit(f"status {answer.status}: {answer.body[:300]!r}")
        messages += [
            {"role": "assistant", "content": answer.answer()},
            {"role": "user", "content": reply},
        ]


async def run(gateway: GatewayProcess, sessions: int) -> list[tuple[int, int]]:
    """Run all sessions; returns (sessions done, resident bytes) samples."""
    numbers: Iterator[int] = iter(range(sessions))
    samples: list[tuple[int, int]] = []
    done = itertools.count(1)
    every = max(1, min(5_000, sessions // 10))
    started = time.perf_counter()

    async def client() -> None:
        connection = await Connection.open(gateway.port)
        for number in numbers:
            await session(connection, number)
            count = next(done)
            if count % every == 0:
                samples.append((count, gateway.rss()))
                rate = count / (time.perf_counter() - started)
                print(
                    f"{count:>8} sessions {samples[-1][1] / MEGABYTE:8.1f} MiB {rate:6.0f}/s",
                    flush=True,
                )
        connection.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return samples


def main() -> None:
    """Run, and end with the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="5,000 sessions; no verdict")
    options = parser.parse_args()
    sessions = 5_000 if options.quick else options.sessions
    started = time.perf_counter()
    with GatewayProcess(scripted(ANSWER)) as gateway:
        samples = uvloop.run(run(gateway, sessions))
        turns = gateway.count("SELECT count(*) FROM turns WHERE answered_at IS NOT NULL")
    if turns != 2 * sessions:
        raise SystemExit(f"{2 * sessions} answers, {turns} durable turns")
    growth = growth_percent(samples)
    figures = {
        "sessions": sessions,
        "turns": turns,
        "rss_at_end_mib": round(samples[-1][1] / MEGABYTE, 1),
        "highest_rss_mib": round(max(rss for _, rss in samples) / MEGABYTE, 1),
        "growth_percent": growth,
        "bar_percent": BAR_PERCENT,
        "seconds": round(time.perf_counter() - started, 1),
    }
    finish("memory", figures, passed=None if growth is None else growth < BAR_PERCENT)


def growth_percent(samples: Sequence[tuple[int, int]]) -> float | None:
    """Return by how much memory grew at its highest after the baseline; None: it was not reached.

    Args:
        samples: (sessions done, resident bytes), in order.
    """
    late = [rss for count, rss in samples if count >= BASELINE]
    if len(late) < 2:
        return None
    return round(100 * (max(late[1:]) / late[0] - 1), 2)


if __name__ == "__main__":
    main()
