"""What the gateway adds to an answer, beside what the LiteLLM proxy adds, in one run.

Both stand in front of one instant engine (``instant_engine.py``): the proxy asks it in OpenAI's
chat API, the gateway in the engine protocol of Rejoinder, and both get the same tokens at once. The
same clients are also let at the engine itself. What is *added* is a median less that of the engine
itself. The gateway renders, links and records every turn as it always does, and each answered
request must be a durable turn at the end; the proxy records nothing.

Conversations have four turns and a history of some 200 words. All three stand by while one is
measured, and take turns, so that a slow minute of a shared host meets all. Figures are medians of
the repeats.

LiteLLM is not installed with Rejoinder: make an environment for it and name its folder,
``python -m venv V && V/bin/pip install 'litellm[proxy]'`` and ``--litellm V``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from gateway import CHAT, TEXT, Conversation, history
from gateway_process import GatewayProcess, beside, free_port
from http_load import Connection, Reply
from instant_engine import __file__ as instant_engine
from outcome import at_least, at_most, finish
from program import Program
from rejoinder.models.embedded import resolve_model

CLIENTS = (1, 16, 128)
TURNS = 4
HISTORY_WORDS = 200
ANSWER = " ".join([TEXT] * 2)
"""Of some 60 tokens."""
MOST = 512
RATE_BAR = 6.0
"""Times the proxy's requests/s, at the least."""
ADDED_BAR = 1 / 6
"""Of what the proxy adds to median latency and time to first token, at the most."""
PROXY = """
model_list:
  - model_name: default
    litellm_params:
      model: openai/default
      api_base: http://127.0.0.1:{port}/v1
      api_key: none
litellm_settings:
  num_retries: 0
  telemetry: false
  set_verbose: false
"""
PRODUCTION = {
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks for prices on the network
    # Without keys, as the gateway on loopback: checking one is not what is compared.
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}
"""As its documents say that the proxy is run in production."""


@dataclass(slots=True)
class Seen:
    """What clients saw of one server in one phase."""

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)

    def add(self, reply: Reply, *, stream: bool) -> None:
        """Count a reply; a wrong one ends the run."""
        if reply.status != 200:
            raise SystemExit(f"status {reply.status}: {reply.body[:500]!r}")
        if stream:
            if b"data: [DONE]" not in reply.body or reply.first_s is None:
                raise SystemExit("a stream ended before its end")
            self.firsts.append(reply.first_s)
        elif reply.answer() != ANSWER:
            raise SystemExit(f"another answer than the engine's: {reply.body[:500]!r}")
        self.times.append(reply.seconds)

    def figures(self) -> dict[str, float]:
        """Return the phase's rate, and medians in milliseconds."""
        found = {
            "requests": len(self.times),
            "requests_per_s": round(len(self.times) / self.seconds, 1),
            "latency_ms": round(statistics.median(self.times) * 1e3, 3),
        }
        if self.firsts:
            found["first_token_ms"] = round(statistics.median(self.firsts) * 1e3, 3)
        return found


async def talk(port: int, clients: int, seconds: float, *, stream: bool) -> Seen:
    """Let clients hold conversations without a pause."""
    seen = Seen()
    rng = random.Random()  # no two phases hold the same conversation: replies would fit several
    bases = [history(rng, HISTORY_WORDS) for _ in range(clients)]
    end = time.perf_counter() + seconds

    async def client(base: bytes) -> None:
        connection = await Connection.open(port)
        while time.perf_counter() < end:
            conversation = Conversation(rng, base, stream=stream, max_tokens=MOST)
            for _ in range(TURNS):
                if time.perf_counter() >= end:
                    break
                seen.add(await connection.request("POST", CHAT, conversation.body()), stream=stream)
                conversation.answered(ANSWER)
        connection.close()

    started = time.perf_counter()
    await asyncio.gather(*map(client, bases))
    seen.seconds = time.perf_counter() - started
    return seen


def compare(
    ports: dict[str, int], clients: int, seconds: float, repeats: int, *, stream: bool
) -> dict[str, Any]:
    """Measure all servers in turn, ``repeats`` times."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in ports}
    for _ in range(repeats):
        for name, port in ports.items():
            seen = uvloop.run(talk(port, clients, seconds, stream=stream))
            runs[name].append(seen.figures())
    found: dict[str, Any] = {
        name: {key: statistics.median(run[key] for run in of) for key in of[0] if key != "requests"}
        for name, of in runs.items()
    }
    requests = {name: sum(run["requests"] for run in of) for name, of in runs.items()}
    figures = {"clients": clients, "stream": stream, **found, "requests": requests}
    return figures | ratios(found)


def ratios(found: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return what both add, and how the gateway compares; the bars are about these."""
    added: dict[str, dict[str, float]] = {}
    for name in ("gateway", "proxy"):
        added[name] = {
            key: round(found[name][key] - found["engine"][key], 3)
            for key in ("latency_ms", "first_token_ms")
            if key in found["engine"]
        }
    return {
        "added": added,
        "rate_ratio": round(
            found["gateway"]["requests_per_s"] / found["proxy"]["requests_per_s"], 2
        ),
        "added_ratio": {
            key: round(value / added["proxy"][key], 3) for key, value in added["gateway"].items()
        },
    }


def verdict(results: list[dict[str, Any]]) -> bool:
    """Whether every phase meets the bars."""
    rates = [result["rate_ratio"] for result in results]
    added = [ratio for result in results for ratio in result["added_ratio"].values()]
    return at_least(RATE_BAR, rates) and at_most(ADDED_BAR, added)


def litellm_version(venv: Path) -> str:
    """Return which LiteLLM is measured."""
    asked = "import importlib.metadata as m; print(m.version('litellm'))"
    command = [venv / "bin" / "python", "-c", asked]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Run, and end with the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--litellm", type=Path, required=True, help="environment with the proxy")
    parser.add_argument("--quick", action="store_true", help="one second each, no verdict")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each phase")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="of the gateway and of the proxy")
    options = parser.parse_args()
    seconds, repeats = (1.0, 1) if options.quick else (options.seconds, options.repeats)
    engine_port, proxy_port = free_port(), free_port()
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rejoinder-bench-")))
        command = [sys.executable, instant_engine, str(engine_port), resolve_model("embedded")]
        url = f"http://127.0.0.1:{engine_port}/health"
        stack.enter_context(Program("engine", [*command, ANSWER], url))
        proxy_config = home / "proxy.yaml"
        proxy_config.write_text(PROXY.format(port=engine_port))
        command = [
            options.litellm / "bin" / "litellm",
            "--config",
            proxy_config,
            "--telemetry",
            "False",
        ]
        command += ["--port", str(proxy_port), "--num_workers", str(options.workers)]
        command += ["--host", "127.0.0.1"]
        url = f"http://127.0.0.1:{proxy_port}/health/liveliness"
        log = home / "proxy.log"
        stack.enter_context(Program("proxy", command, url, environment=PRODUCTION, log=log))
        gateway = stack.enter_context(GatewayProcess(beside(engine_port), options.workers))
        ports = {"engine": engine_port, "gateway": gateway.port, "proxy": proxy_port}
        answered = 0
        for port in ports.values():
            warm = uvloop.run(talk(port, 2, 1.0, stream=False))
            answered += len(warm.times) if port == gateway.port else 0
        results = []
        for stream in (False, True):
            for clients in CLIENTS:
                result = compare(ports, clients, seconds, repeats, stream=stream)
                answered += result["requests"]["gateway"]
                results.append(result)
                print(json.dumps(result), flush=True)
        durable = gateway.count(
            "SELECT count(*) FROM turns WHERE answered_at IS NOT NULL AND state <> 'open'"
        )
        linked = gateway.count("SELECT count(*) FROM turns WHERE parent_id IS NOT NULL")
    if durable != answered:
        raise SystemExit(f"{answered} answers, {durable} durable turns")
    figures = {
        "litellm": litellm_version(options.litellm),
        "workers": options.workers,
        "repeats": repeats,
        "bars": {"rate_ratio": RATE_BAR, "added_ratio": round(ADDED_BAR, 3)},
        "durable": durable,
        "linked": linked,
        "results": results,
    }
    finish("proxy_overhead", figures, passed=None if options.quick else verdict(results))


if __name__ == "__main__":
    main()
