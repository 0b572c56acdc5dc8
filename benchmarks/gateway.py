"""How fast the gateway is, with capture and durability on, beside its load generator.

The engine is scripted and answers at once, so all time is the gateway's. Conversations have four
turns, so linking, next states and the queue of the judge are part of the work. Every answered
request must be a durable turn in the journal at the end, or the run fails.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import orjson
import uvloop
from gateway_process import GatewayProcess
from http_load import Connection, Reply

CHAT = "/v1/chat/completions"
CLIENTS = 64
OPEN_RATE = 200.0
TURNS = 4
SHORT_ANSWER = "The answer is short, so that requests and not tokens are measured."
WORDS = (
    "the quick brown fox jumps over a lazy dog while seventeen engineers discuss tokenizers and "
    "rendering of long agent histories with tools files tests errors and logs"
).split()


@dataclass(slots=True)
class Tally:
    """What one phase saw."""

    seconds: float = 0.0
    replies: int = 0
    tokens: int = 0
    times: list[float] = field(default_factory=list)

    def add(self, reply: Reply, *, streamed: bool = False) -> None:
        """Count one reply; any error ends the run."""
        if reply.status != 200:
            raise SystemExit(f"status {reply.status}: {reply.body[:500]!r}")
        if streamed and b"data: [DONE]" not in reply.body:
            raise SystemExit("a stream ended before its end")
        self.replies += 1
        self.tokens += reply.tokens() if streamed else 0
        self.times.append(reply.seconds)

    def figures(self) -> dict[str, float]:
        """Return rates and quantiles in milliseconds."""
        cuts = statistics.quantiles(self.times, n=1000) if len(self.times) > 1 else [0.0] * 999
        return {
            "requests": self.replies,
            "requests_per_s": round(self.replies / self.seconds, 1),
            "tokens_per_s": round(self.tokens / self.seconds, 1),
            "p50_ms": round(cuts[499] * 1e3, 2),
            "p99_ms": round(cuts[989] * 1e3, 2),
        }


def words(rng: random.Random, count: int) -> str:
    """Return text of about ``count`` tokens."""
    return " ".join(rng.choices(WORDS, k=count))


class Conversation:
    """One client's growing conversation with a history of a given size."""

    def __init__(self, rng: random.Random, tokens: int, *, stream: bool, max_tokens: int) -> None:
        self._rng = rng
        self._stream = stream
        self._max_tokens = max_tokens
        self._messages = [{"role": "system", "content": words(rng, min(tokens // 4, 2000))}]
        left = tokens - min(tokens // 4, 2000)
        while left > 400:  # what was said before, in messages of an agent's size
            self._messages += [
                {"role": "user", "content": words(rng, 200)},
                {"role": "assistant", "content": words(rng, 200)},
            ]
            left -= 400

    def body(self) -> bytes:
        """Return the next request."""
        self._messages.append({"role": "user", "content": words(self._rng, 25)})
        made: dict[str, Any] = {
            "model": "default", "messages": self._messages, "max_tokens": self._max_tokens,
        }  # fmt: skip
        if self._stream:
            made["stream"] = True
        return orjson.dumps(made)

    def answered(self, text: str) -> None:
        """Take the answer into the history."""
        self._messages.append({"role": "assistant", "content": text})


async def closed_loop(
    port: int, seconds: float, make: Callable[[], Conversation], *, stream: bool, answer: str
) -> Tally:
    """Let clients ask without pause."""
    tally = Tally()
    end = time.perf_counter() + seconds

    async def client() -> None:
        connection = await Connection.open(port)
        while time.perf_counter() < end:
            conversation = make()
            for _ in range(TURNS):
                reply = await connection.request("POST", CHAT, conversation.body())
                tally.add(reply, streamed=stream)
                conversation.answered(answer if stream else reply.answer())
        connection.close()

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    tally.seconds = time.perf_counter() - started
    return tally


async def open_loop(
    port: int, seconds: float, ask: Callable[[Connection], Coroutine[Any, Any, Reply]]
) -> Tally:
    """Let requests arrive at a fixed rate at random moments, whatever the gateway does.

    Times count from the moment a request was due.
    """
    tally = Tally()
    rng = random.Random(7)
    loop = asyncio.get_running_loop()
    free: list[Connection] = [await Connection.open(port) for _ in range(32)]

    async def one(due: float) -> None:
        connection = free.pop() if free else await Connection.open(port)
        reply = await ask(connection)
        reply.seconds = loop.time() - due
        tally.add(reply)
        free.append(connection)

    started = loop.time()
    due = started
    tasks = []
    while due < started + seconds:
        await asyncio.sleep(max(0.0, due - loop.time()))
        tasks.append(asyncio.create_task(one(due)))
        due += rng.expovariate(OPEN_RATE)
    await asyncio.gather(*tasks)
    tally.seconds = loop.time() - started
    for connection in free:
        connection.close()
    return tally


async def measure(gateway: GatewayProcess, seconds: float, tokens: int) -> dict[str, Any]:
    """Run all phases with prompts of one size."""
    rng = random.Random(tokens)
    port = gateway.port
    asked = itertools.count()
    answered = 0
    result: dict[str, Any] = {"prompt_tokens": tokens}

    def make(*, stream: bool = False) -> Conversation:
        next(asked)
        return Conversation(rng, tokens, stream=stream, max_tokens=512 if stream else 16)

    cpu, wall = gateway.cpu_seconds(), time.perf_counter()
    whole = await closed_loop(port, seconds, make, stream=False, answer="")
    result["closed"] = whole.figures()
    used = (gateway.cpu_seconds() - cpu) / (time.perf_counter() - wall)
    result["closed"]["gateway_cpu"] = round(used, 2)
    streamed = await closed_loop(
        port, seconds, lambda: make(stream=True), stream=True, answer=LONG_ANSWER
    )
    result["streaming"] = streamed.figures()
    conversations = itertools.cycle([make() for _ in range(100)])
    trivial = await open_loop(port, seconds / 2, lambda c: c.request("GET", "/healthz"))
    bodies = [next(conversations).body() for _ in range(100)]
    counter = itertools.count()

    async def ask(connection: Connection) -> Reply:
        # Every request is new to the journal: only its last words differ from those before.
        body = orjson.loads(bodies[next(counter) % 100])
        body["messages"][-1]["content"] += f" {next(counter)}"
        return await connection.request("POST", CHAT, orjson.dumps(body))

    opened = await open_loop(port, seconds, ask)
    result["open"] = opened.figures()
    result["open"]["trivial_p50_ms"] = trivial.figures()["p50_ms"]
    overhead = opened.figures()["p99_ms"] - trivial.figures()["p50_ms"]
    result["open"]["overhead_p99_ms"] = round(overhead, 2)
    answered = whole.replies + streamed.replies + opened.replies
    result["answered"] = answered
    return result


LONG_ANSWER = " ".join(WORDS * 12)


def main() -> None:
    """Run and print one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds instead of a minute")
    parser.add_argument("--seconds", type=float, default=None, help="of each phase")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--prompt", type=int, nargs="*", default=[200, 10_000])
    options = parser.parse_args()
    seconds = options.seconds or (3.0 if options.quick else 10.0)
    results = []
    for tokens in options.prompt:
        with GatewayProcess(LONG_ANSWER, options.workers) as gateway:
            result = asyncio.run(
                measure(gateway, seconds, tokens), loop_factory=uvloop.new_event_loop
            ) if False else uvloop.run(measure(gateway, seconds, tokens))
            query = "SELECT count(*) FROM turns WHERE answered_at IS NOT NULL AND state <> 'open'"
            result["durable"] = gateway.count(query)
            linked = "SELECT count(*) FROM turns WHERE parent_id IS NOT NULL"
            result["linked"] = gateway.count(linked)
        print(json.dumps(result))
        if result["durable"] != result["answered"]:
            raise SystemExit(f"{result['answered']} answers, {result['durable']} durable turns")
        results.append(result)
    print(json.dumps({"benchmark": "gateway", "clients": CLIENTS, "results": results}))


if __name__ == "__main__":
    main()
