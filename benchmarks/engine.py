"""Engine against ``generate`` on the same model in the same run; the last line is one JSON object.

Both sample at temperature 1 from prompts that nothing has seen before. Measurements alternate, so
that a machine that slows down slows both. ``tokens_per_s`` counts answer tokens over the whole
time, prompts included; ``constrained_tokens_per_s`` those of answers held to a JSON schema. The
engine runs with the thread settings that it serves with. ``generate`` runs in processes of its own,
with PyTorch's defaults and with the engine's settings, and each time the faster one counts: the
defaults win on an idle machine and lose by far on a busy one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import statistics
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generate_process import GenerateProcess
from outcome import at_least, finish
from rejoinder.models.cores import share_cores

AS_STARTED = dict(os.environ)
"""Before the settings of the engine."""
share_cores()

import torch  # noqa: E402 - share_cores must come first

from rejoinder.config import ModelConfig, TorchEngineConfig  # noqa: E402
from rejoinder.engine.base import Constraint, Form, GenerateRequest, VersionSource  # noqa: E402
from rejoinder.engine.torch_engine.engine import TorchEngine  # noqa: E402
from rejoinder.models.embedded import resolve_model  # noqa: E402
from rejoinder.models.loading import pick_device, pick_dtype  # noqa: E402
from rejoinder.models.tokenizer import ModelTokenizer, load_tokenizer  # noqa: E402
from rejoinder.types import Sampling, WeightsKind  # noqa: E402

POLICY = "default"
CONCURRENCY = (1, 8)
BAR = 1.2
"""At least so many times as fast as ``generate``."""
REST_S = 0.5
"""After each batch of ``generate``: its threads spin for a while before they sleep."""
HELD = Constraint([Form('{"type": "string", "minLength": 100000}')])
"""A form that no answer of the benchmark comes to the end of."""
WORDS = (
    *("sea", "garden", "letter", "winter", "market", "piano", "bridge", "lemon", "forest"),
    *("station", "coffee", "river", "cloud", "paper", "doctor", "street", "summer", "window"),
)


@dataclass
class Measured:
    """Figures of all repeats."""

    generate: dict[int, list[float]] = field(default_factory=dict)
    engine: dict[int, list[float]] = field(default_factory=dict)
    other: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """Note one more measurement."""
        self.other.setdefault(name, []).append(value)


class Prompts:
    """Random prompts of exact length, never the same one twice."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self._tokenizer = tokenizer
        self._random = random.Random(0)

    def make(self, length: int) -> list[int]:
        """Return ``length`` ids."""
        text = " ".join(self._random.choice(WORDS) for _ in range(2 * length))
        return self._tokenizer.encode(text)[:length]


async def one_answer(
    engine: TorchEngine,
    prompt: list[int],
    tokens: int,
    eos_ids: tuple[int, ...],
    constraint: Constraint | None = None,
) -> list[float]:
    """Return the times of the answer's tokens, in seconds from the request."""
    bias = dict.fromkeys(eos_ids, -100.0)
    sampling = Sampling(tokens, logit_bias=bias)
    request = GenerateRequest("b", prompt, sampling, POLICY, constraint=constraint)
    begin = time.perf_counter()
    return [time.perf_counter() - begin async for _ in engine.generate(request)]


class Bench:
    """One run."""

    def __init__(
        self,
        engine: TorchEngine,
        baselines: Mapping[str, GenerateProcess],
        tokenizer: ModelTokenizer,
        tokens: int,
    ) -> None:
        self._engine = engine
        self._baselines = baselines
        self._eos_ids = tokenizer.eos_ids
        self._prompts = Prompts(tokenizer)
        self._tokens = tokens
        self.measured = Measured()

    async def throughput(self, concurrency: int, prompt_length: int) -> None:
        """Measure engine and baselines once."""
        total = concurrency * self._tokens
        best = 0.0
        for name, baseline in self._baselines.items():
            prompts = [self._prompts.make(prompt_length) for _ in range(concurrency)]
            speed = total / await asyncio.to_thread(baseline.run, prompts, self._tokens)
            await asyncio.sleep(REST_S)
            self.measured.add(f"generate_{name}_tokens_per_s_{concurrency}", speed)
            best = max(best, speed)
        self.measured.generate.setdefault(concurrency, []).append(best)
        free = await self._engine_speed(concurrency, prompt_length, None)
        self.measured.engine.setdefault(concurrency, []).append(free)
        held = await self._engine_speed(concurrency, prompt_length, HELD)
        self.measured.add(f"constrained_tokens_per_s_{concurrency}", held)

    async def _engine_speed(
        self, concurrency: int, prompt_length: int, constraint: Constraint | None
    ) -> float:
        prompts = [self._prompts.make(prompt_length) for _ in range(concurrency)]
        begin = time.perf_counter()
        answers = [
            one_answer(self._engine, prompt, self._tokens, self._eos_ids, constraint)
            for prompt in prompts
        ]
        await asyncio.gather(*answers)
        return concurrency * self._tokens / (time.perf_counter() - begin)

    async def first_token(self, length: int) -> None:
        """Measure the time to the first token of a new prompt, and of the turn after it."""
        prompt = self._prompts.make(length)
        cold = (await one_answer(self._engine, prompt, 2, self._eos_ids))[0]
        warm = (await one_answer(self._engine, prompt + self._prompts.make(20), 1, self._eos_ids))[
            0
        ]
        self.measured.add(f"first_token_ms_{length}", 1e3 * cold)
        self.measured.add(f"first_token_ms_{length}_next_turn", 1e3 * warm)
        self.measured.add(f"prefill_tokens_per_s_{length}", length / cold)

    async def stall(self, length: int) -> None:
        """Measure the gaps between tokens of an answer while a long prompt is computed."""
        times = asyncio.create_task(
            one_answer(self._engine, self._prompts.make(20), self._tokens, self._eos_ids)
        )
        await asyncio.sleep(0.3)
        await one_answer(self._engine, self._prompts.make(length), 1, self._eos_ids)
        arrived = await times
        gaps = [b - a for a, b in itertools.pairwise(arrived)]
        self.measured.add(f"longest_gap_ms_during_prompt_of_{length}", 1e3 * max(gaps))


def summary(measured: Measured, arguments: argparse.Namespace, seconds: float) -> dict[str, object]:
    """Return medians over the repeats, with the worst ratio of any repeat."""
    concurrency = {}
    for n in CONCURRENCY:
        pairs = list(zip(measured.engine[n], measured.generate[n], strict=True))
        engine = statistics.median(measured.engine[n])
        generate = statistics.median(measured.generate[n])
        concurrency[str(n)] = {
            "engine_tokens_per_s": round(engine, 2),
            "generate_tokens_per_s": round(generate, 2),
            "ratio": round(engine / generate, 3),
            "lowest_ratio": round(min(a / b for a, b in pairs), 3),
        }
    return {
        "model": arguments.model,
        "device": arguments.device,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "prompt_tokens": arguments.prompt,
        "answer_tokens": arguments.tokens,
        "repeats": arguments.repeats,
        "concurrency": concurrency,
        "bar": BAR,
        **{name: round(statistics.median(values), 1) for name, values in measured.other.items()},
        "seconds": round(seconds, 1),
    }


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    begin = time.perf_counter()
    config = ModelConfig(path=arguments.model, device=arguments.device)
    device = pick_device(config)
    path: Path = resolve_model(arguments.model)
    tokenizer = load_tokenizer(path)
    settings = TorchEngineConfig(context_length=4096)
    engine = TorchEngine(path, settings, pick_dtype(config, device), device)
    await engine.load(VersionSource(POLICY, 0, str(path), WeightsKind.FULL, str(path)), live=True)
    baselines = {
        name: GenerateProcess(path, config.device, config.dtype, environment)
        for name, environment in (("default", AS_STARTED), ("shared", os.environ))
    }
    with ExitStack() as processes:
        for baseline in baselines.values():
            processes.enter_context(baseline)
        bench = Bench(engine, baselines, tokenizer, arguments.tokens)
        for repeat in range(-1, arguments.repeats):
            if repeat == 0:  # the first round warms up
                bench.measured = Measured()
            for n in CONCURRENCY:
                await bench.throughput(n, arguments.prompt)
            for length in (200, 2000):
                await bench.first_token(length)
            await bench.stall(2000)
            print(f"repeat {repeat + 1}/{arguments.repeats}: {bench.measured}", file=sys.stderr)
    await engine.close()
    found = summary(bench.measured, arguments, time.perf_counter() - begin)
    return {**found, "generate": {name: one.settings for name, one in baselines.items()}}


def verdict(concurrency: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether the engine is fast enough at every concurrency."""
    known = set(concurrency) >= {str(n) for n in CONCURRENCY}
    return known and at_least(BAR, [figures["ratio"] for figures in concurrency.values()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="answer tokens")
    parser.add_argument("--prompt", type=int, default=48, help="prompt tokens")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="auto")
    figures = asyncio.run(measure(parser.parse_args()))
    finish("engine", figures, passed=verdict(figures["concurrency"]))


if __name__ == "__main__":
    main()
