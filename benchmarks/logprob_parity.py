"""Do engine and trainer compute the same log-probabilities (rule 8)?

The real engine samples turns of the real model; the real trainer computes the log-probability of
every sampled token again, from the ids alone. Compared are the start weights and those after each
of three updates, of all weights and of an adapter (which the engine merges and the trainer does
not). Turns in flight while a version was taken up are reported apart: their keys and values are
of the older version, so that their later tokens differ by more than arithmetic.

    python benchmarks/logprob_parity.py [--turns 12] [--tokens 64] [--dtype bfloat16]

The last line is one JSON object; ``passed`` says whether every mean is at most 1e-4, the
bar for float32.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outcome import at_most, finish
from rejoinder.models.cores import share_cores

share_cores()

import numpy as np  # noqa: E402 - share_cores must come before PyTorch
import torch  # noqa: E402

from rejoinder.algorithms.base import TokenSignal  # noqa: E402
from rejoinder.chat.renderer import ChatTemplateRenderer  # noqa: E402
from rejoinder.config import Config, LoraConfig, ModelConfig, TrainerConfig  # noqa: E402
from rejoinder.config import TorchEngineConfig as EngineSettings  # noqa: E402
from rejoinder.engine.base import GenerateRequest, VersionSource  # noqa: E402
from rejoinder.engine.torch_engine.engine import TorchEngine  # noqa: E402
from rejoinder.evaluation.questions import Split, load_questions  # noqa: E402
from rejoinder.models.embedded import resolve_model  # noqa: E402
from rejoinder.models.loading import pick_device, pick_dtype  # noqa: E402
from rejoinder.models.tokenizer import load_tokenizer  # noqa: E402
from rejoinder.trainer.base import SignalledTurn  # noqa: E402
from rejoinder.trainer.torch_backend import TorchBackend  # noqa: E402
from rejoinder.types import Message, Sampling, WeightsKind  # noqa: E402

POLICY = "default"
BAR = 1e-4
UPDATES = 3
TEMPERATURES = (0.6, 1.0)
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Sampled:
    """A turn as the engine gave it."""

    prompt: list[int]
    ids: list[int]
    logprobs: list[float]
    versions: list[int]
    temperature: float


class Parity:
    """One engine and one trainer that follow each other's versions."""

    def __init__(self, config: Config, engine: TorchEngine, files: Path) -> None:
        self._backend = TorchBackend(config, "policy")
        self._backend.load(None, None)
        self._engine = engine
        self._files = files
        self._base = str(resolve_model(config.model.path))
        tokenizer = load_tokenizer(Path(self._base))
        renderer = ChatTemplateRenderer(tokenizer)
        self._prompts = [
            renderer.render([Message("user", question.text)]).ids()
            for question in load_questions(Split.TRAINING)
        ]
        self._asked = 0
        self.version = 0

    async def take_up(self) -> None:
        """Let the engine serve what the trainer holds."""
        if self.version == 0:
            source = VersionSource(POLICY, 0, self._base, WeightsKind.FULL, self._base)
        else:
            path = self._files / f"v{self.version}"
            path.mkdir(exist_ok=True)
            self._backend.save_weights(path)
            source = VersionSource(POLICY, self.version, str(path), self._backend.kind, self._base)
        await self._engine.load(source, live=True)

    async def sample(self, turns: int, tokens: int) -> list[Sampled]:
        """Sample turns of the live version, several at once."""
        room = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*(self._sample_one(room, tokens) for _ in range(turns)))

    async def _sample_one(self, room: asyncio.Semaphore, tokens: int) -> Sampled:
        number = self._asked
        self._asked += 1
        request = GenerateRequest(
            request_id=f"parity-{number}",
            prompt_ids=self._prompts[number % len(self._prompts)],
            sampling=Sampling(
                max_tokens=tokens, temperature=TEMPERATURES[number % len(TEMPERATURES)], seed=number
            ),
            policy=POLICY,
        )
        turn = Sampled(request.prompt_ids, [], [], [], request.sampling.temperature)
        async with room:
            async for chunk in self._engine.generate(request):
                turn.ids.extend(chunk.ids)
                turn.logprobs.extend(chunk.logprobs)
                turn.versions.extend([chunk.version] * len(chunk.ids))
        return turn

    def compare_and_update(self, turns: Sequence[Sampled]) -> dict[str, float]:
        """Compare the tokens that the trainer's weights sampled, then take a step with them.

        Every other turn is praised, so that the weights move both ways.
        """
        masks = [np.array(turn.versions) == self.version for turn in turns]
        total = sum(int(mask.sum()) for mask in masks)
        batch = [
            SignalledTurn(
                prompt_ids=turn.prompt,
                answer_ids=turn.ids,
                behaviour=turn.logprobs,
                temperature=turn.temperature,
                signal=TokenSignal(
                    np.full(len(turn.ids), 1.0 if index % 2 else -1.0, np.float32), mask
                ),
                weight=1.0 / total,
                is_current=True,
            )
            for index, (turn, mask) in enumerate(zip(turns, masks, strict=True))
            if mask.any()
        ]
        for _ in self._backend.accumulate(batch):
            pass
        self.version += 1
        metrics = self._backend.apply(self.version).metrics
        return {
            "turns": len(batch),
            "tokens": int(metrics["logprob_difference_tokens"]),
            "mean": metrics["logprob_difference_mean"],
            "max": metrics["logprob_difference_max"],
        }


async def measure(config: Config, turns: int, tokens: int) -> dict[str, dict[str, float]]:
    """Return the differences at the start, after each update, and across a take-up."""
    device = pick_device(config.model)
    engine = TorchEngine(
        resolve_model(config.model.path),
        EngineSettings(max_running=AT_ONCE, context_length=1024),
        pick_dtype(config.model, device),
        device,
    )
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as files:
        parity = Parity(config, engine, Path(files))
        await parity.take_up()
        for update in range(UPDATES + 1):
            name = f"after_{update}_updates"
            sampled = await parity.sample(turns, tokens)
            found[name] = await asyncio.to_thread(parity.compare_and_update, sampled)
            report(config, name, found[name])
            if update < UPDATES:
                await parity.take_up()
        # The last update is taken up in the middle of the next turns.
        sampled, _ = await asyncio.gather(parity.sample(AT_ONCE, 3 * tokens), parity.take_up())
        mixed = [turn for turn in sampled if len(set(turn.versions)) > 1]
        if mixed:
            name = "sampled_by_two_versions"
            found[name] = await asyncio.to_thread(parity.compare_and_update, mixed)
            report(config, name, found[name])
    await engine.close()
    return found


def report(config: Config, name: str, figures: dict[str, float]) -> None:
    kind = "full" if config.trainer.lora is None else "lora"
    print(
        f"{kind:5} {name:24} {figures['tokens']:6} tokens   mean {figures['mean']:.2e}   "
        f"max {figures['max']:.2e}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    arguments = parser.parse_args()
    results = {}
    for kind, settings in (
        ("full", TrainerConfig(learning_rate=1e-5)),
        ("lora", TrainerConfig(learning_rate=2e-4, lora=LoraConfig())),
    ):
        model = ModelConfig(path=arguments.model, device=arguments.device, dtype=arguments.dtype)
        config = Config(model=model, trainer=settings)
        results[kind] = asyncio.run(measure(config, arguments.turns, arguments.tokens))
    means = means_of(results)
    figures = {
        "torch": torch.__version__,
        "device": arguments.device,
        "dtype": arguments.dtype,
        "means": means,
        "bar": BAR,
        **results,
    }
    finish("logprob_parity", figures, passed=at_most(BAR, means))


def means_of(results: dict[str, dict[str, dict[str, float]]]) -> list[float]:
    """Return every mean that the bar is for: those of turns that one version sampled."""
    return [
        figures["mean"]
        for measured in results.values()
        for name, figures in measured.items()
        if name != "sampled_by_two_versions"
    ]


if __name__ == "__main__":
    main()
