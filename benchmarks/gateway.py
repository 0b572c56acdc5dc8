"""How fast the gateway is, with capture and durability on, beside its load generator.

The engine is scripted and answers at once, so all time is the gateway's. Conversations have four
turns, so linking, next states and the queue of the judge are part of the work. Every answered
request must be a durable turn in the journal at the end, or the run fails.

The whole is repeated with a new gateway each time. Figures are medians of the repeats, and the
range of those that have a bar is given, for speed on a shared host changes from minute to minute.
The bars are for the short prompts; the long ones are reported. The last line is one JSON object.

Prompts are made of words: ``prompt_words`` is what was asked for, and ``first_prompt_tokens`` what
the first request of a conversation had, as its ``usage`` says. Later turns of it have more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import operator
import random
import statistics
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import orjson
import uvloop

from gateway_process import GatewayProcess, scripted
from http_load import Connection, Reply
from outcome import finish

CHAT = "/v1/chat/completions"
CLIENTS = 64
OPEN_RATE = 200.0
TURNS = 4
SHORT_PROMPT = 200
BARS = (
    ("closed", "requests_per_s", operator.ge, 600.0),
    ("streaming", "tokens_per_s", operator.ge, 20_000.0),
    ("open", "overhead_p99_ms", operator.le, 20.0),
)
"""Of short prompts, at ``OPEN_RATE`` requests/s where they are open."""
TEXT = (
    "the quick brown fox jumps over a lazy dog while seventeen engineers discuss tokenizers and "
    "rendering of long agent histories with tools files tests errors and logs"
)
WORDS = TEXT.split()
LONG_ANSWER = " ".join([TEXT] * 12)
"""About 340 tokens."""


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
    """Return text of ``count`` words."""
    return " ".join(rng.choices(WORDS, k=count))


def message(role: str, content: str) -> bytes:
    """Return one message as JSON."""
    return orjson.dumps({"role": role, "content": content})


def history(rng: random.Random, size: int) -> bytes:
    """Return a conversation of about ``size`` words: a system text and what was said so far."""
    system = min(size - 45, 2000)
    made = [message("system", words(rng, system))]
    for _ in range(max(0, size - system - 150) // 400):
        made += [message("user", words(rng, 200)), message("assistant", words(rng, 200))]
    return b",".join(made)


class Conversation:
    """A conversation that goes on from a history. Bodies are joined from bytes: load is cheap."""

    def __init__(self, rng: random.Random, base: bytes, *, stream: bool, max_tokens: int) -> None:
        self._rng = rng
        self._messages = base
        self._tail = b'],"max_tokens":%d%b}' % (max_tokens, b',"stream":true' if stream else b"")

    def body(self) -> bytes:
        """Return the next request, whose last message is new."""
        self._messages += b"," + message("user", words(self._rng, 25))
        return b'{"model":"default","messages":[' + self._messages + self._tail

    def answered(self, text: str) -> None:
        """Take the answer into the history."""
        self._messages += b"," + message("assistant", text)


async def closed_loop(
    port: int,
    seconds: float,
    make: Callable[[], Conversation],
    *,
    stream: bool,
    turns: int = TURNS,
) -> Tally:
    """Let clients hold conversations of ``turns`` turns without pause."""
    tally = Tally()
    end = time.perf_counter() + seconds

    async def client() -> None:
        connection = await Connection.open(port)
        while time.perf_counter() < end:
            conversation = make()
            for _ in range(turns):
                reply = await connection.request("POST", CHAT, conversation.body())
                tally.add(reply, streamed=stream)
                conversation.answered(LONG_ANSWER if stream else reply.answer())
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


class Measurement:
    """All phases with prompts of one size."""

    def __init__(self, gateway: GatewayProcess, seconds: float, size: int) -> None:
        self._gateway = gateway
        self._seconds = seconds
        self._size = size
        self._rng = random.Random(size)
        self._bases = [history(self._rng, size) for _ in range(CLIENTS)]
        self._first_prompt_tokens = 0
        self.answered = 0

    def known(self, *, stream: bool = False) -> Conversation:
        """Return a conversation that goes on from a history the gateway has seen: agents resend."""
        return self._conversation(self._rng.choice(self._bases), stream=stream)

    def fresh(self) -> Conversation:
        """Return a conversation of which the gateway has seen nothing."""
        return self._conversation(history(self._rng, self._size), stream=False)

    def _conversation(self, base: bytes, *, stream: bool) -> Conversation:
        return Conversation(self._rng, base, stream=stream, max_tokens=512 if stream else 16)

    async def run(self) -> dict[str, Any]:
        """Run the phases."""
        port, seconds = self._gateway.port, self._seconds
        await self._warm_up()
        cpu, wall = self._gateway.cpu_seconds(), time.perf_counter()
        whole = await closed_loop(port, seconds, self.known, stream=False)
        cpu = (self._gateway.cpu_seconds() - cpu) / (time.perf_counter() - wall)
        streamed = await closed_loop(port, seconds, lambda: self.known(stream=True), stream=True)
        trivial = await open_loop(port, seconds / 2, lambda c: c.request("GET", "/healthz"))
        opened = await open_loop(
            port, seconds, lambda c: c.request("POST", CHAT, self.known().body())
        )
        fresh = await closed_loop(port, seconds / 2, self.fresh, stream=False, turns=1)
        self.answered += sum(t.replies for t in (whole, streamed, opened, fresh))
        base_ms = trivial.figures()["p50_ms"]
        overhead = {
            "trivial_p50_ms": base_ms,
            "overhead_p50_ms": round(opened.figures()["p50_ms"] - base_ms, 2),
            "overhead_p99_ms": round(opened.figures()["p99_ms"] - base_ms, 2),
        }
        return {
            "prompt_words": self._size,
            "first_prompt_tokens": self._first_prompt_tokens,
            "closed": whole.figures() | {"gateway_cores": round(cpu, 2)},
            "streaming": streamed.figures(),
            "open": opened.figures() | overhead,
            "fresh": fresh.figures(),
            "answered": self.answered,
        }

    async def _warm_up(self) -> None:
        connection = await Connection.open(self._gateway.port)
        for base in self._bases:
            body = self._conversation(base, stream=False).body()
            reply = await connection.request("POST", CHAT, body)
            Tally().add(reply)
            self._first_prompt_tokens = self._first_prompt_tokens or reply.prompt_tokens()
            self.answered += 1
        connection.close()


def main() -> None:
    """Run, and end with the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds instead of a minute")
    parser.add_argument("--seconds", type=float, default=None, help="of each phase")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--prompt", type=int, nargs="*", default=[SHORT_PROMPT, 10_000])
    options = parser.parse_args()
    seconds = options.seconds or (3.0 if options.quick else 10.0)
    repeats = 1 if options.quick else options.repeats
    results = []
    for size in options.prompt:
        runs = [repeat(options.workers, seconds, size) for _ in range(repeats)]
        results.append(medians(runs) | {"ranges": ranges(runs)})
        print(json.dumps(results[-1]))
    figures = {
        "clients": CLIENTS,
        "workers": options.workers,
        "repeats": repeats,
        "bars": {f"{phase}_{name}": bar for phase, name, _, bar in BARS},
        "results": results,
    }
    finish("gateway", figures, passed=None if options.quick else verdict(results))


def verdict(results: list[dict[str, Any]]) -> bool | None:
    """Whether short prompts meet every bar; None where they were not measured."""
    short = [result for result in results if result["prompt_words"] == SHORT_PROMPT]
    if not short:
        return None
    return all(
        meets(result[phase][name], bar) for result in short for phase, name, meets, bar in BARS
    )


def repeat(workers: int, seconds: float, size: int) -> dict[str, Any]:
    """Run all phases once, and count what is in the journal then."""
    with GatewayProcess(scripted(LONG_ANSWER), workers) as gateway:
        result = uvloop.run(Measurement(gateway, seconds, size).run())
        query = "SELECT count(*) FROM turns WHERE answered_at IS NOT NULL AND state <> 'open'"
        result["durable"] = gateway.count(query)
        linked = "SELECT count(*) FROM turns WHERE parent_id IS NOT NULL"
        result["linked"] = gateway.count(linked)
    print(json.dumps(result))
    if result["durable"] != result["answered"]:
        raise SystemExit(f"{result['answered']} answers, {result['durable']} durable turns")
    return result


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return each figure's median."""
    return {
        name: medians([run[name] for run in runs])
        if isinstance(value, dict)
        else statistics.median(run[name] for run in runs)
        for name, value in runs[0].items()
    }


def ranges(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return lowest and highest of the figures that have a bar."""
    found = {}
    for phase, name, *_ in BARS:
        values = [run[phase][name] for run in runs]
        found[f"{phase}_{name}"] = [min(values), max(values)]
    return found


if __name__ == "__main__":
    main()
