"""Whether the gateway's memory stays bounded: many short sessions, resident bytes sampled.

Each session has two turns and never comes back, so whatever the gateway keeps of it is a leak.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Iterator

import uvloop

from gateway_process import GatewayProcess
from http_load import Connection

CHAT = "/v1/chat/completions"
CLIENTS = 32
BASELINE = 20_000
"""Sessions after which caches and pools are full."""
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
    """Run and print one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="5,000 sessions; no verdict")
    options = parser.parse_args()
    sessions = 5_000 if options.quick else options.sessions
    started = time.perf_counter()
    with GatewayProcess(ANSWER) as gateway:
        samples = uvloop.run(run(gateway, sessions))
        turns = gateway.count("SELECT count(*) FROM turns WHERE answered_at IS NOT NULL")
    if turns != 2 * sessions:
        raise SystemExit(f"{2 * sessions} answers, {turns} durable turns")
    base = next((rss for count, rss in samples if count >= BASELINE), samples[0][1])
    result = {
        "benchmark": "memory",
        "sessions": sessions,
        "turns": turns,
        "rss_at_20k_mib": round(base / MEGABYTE, 1) if sessions > BASELINE else None,
        "rss_at_end_mib": round(samples[-1][1] / MEGABYTE, 1),
        "growth_percent": round(100 * (samples[-1][1] / base - 1), 2),
        "seconds": round(time.perf_counter() - started, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
