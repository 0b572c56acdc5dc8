"""Tiny random models on disk, and what tests of engines share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from rejoinder.config import TorchEngineConfig
from rejoinder.engine.base import ClientLogprob, Engine, GenerateRequest, VersionSource
from rejoinder.engine.torch_engine.engine import TorchEngine
from rejoinder.models.embedded import resolve_model
from rejoinder.models.tokenizer import ModelTokenizer, load_tokenizer
from rejoinder.types import FinishReason, Sampling, WeightsKind

DEVICE = torch.device(os.environ.get("REJOINDER_TEST_DEVICE", "cpu"))
"""Where engines and trainers of tests compute; what they are compared with stays on the CPU."""
POLICY = "default"
CONTEXT = 256
_SMALL = {
    "vocab_size": 320,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.25,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 258,
}


def save_tiny_model(
    path: Path, tokenizer: ModelTokenizer, family: str = "llama", seed: int = 0, **settings: object
) -> Path:
    """Write a random model of a family, with the tokenizer, as a Hugging Face directory."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **_SMALL | settings)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(path)
    tokenizer.tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    return path


def save_random_model(path: Path) -> Path:
    """Write a model that says anything at all, in the tokens and the template of the embedded one.

    Of what a grammar allows it chooses more freely than a trained one, and far faster.
    """
    embedded = resolve_model("embedded")
    texts = load_tokenizer(embedded)
    save_tiny_model(
        path,
        texts,
        vocab_size=texts.tokenizer.get_vocab_size(),
        max_position_embeddings=2048,
        eos_token_id=list(texts.eos_ids),
    )
    shutil.copy(embedded / "chat_template.jinja", path)
    return path


def tiny_config(**settings: object) -> TorchEngineConfig:
    """Small enough that limits are met in tests."""
    return TorchEngineConfig.model_validate(
        {"max_running": 4, "cache_slots": 6, "prefill_chunk": 16, "threads": 1} | settings
    )


def source(path: Path, version: int = 0) -> VersionSource:
    """Name a full version."""
    return VersionSource(POLICY, version, str(path), WeightsKind.FULL, str(path))


@contextlib.asynccontextmanager
async def torch_engine(path: Path, **settings: object) -> AsyncIterator[TorchEngine]:
    """Run an engine that serves the model in ``path`` as version 0."""
    engine = TorchEngine(path, tiny_config(**settings), torch.float32, DEVICE)
    try:
        await engine.load(source(path), live=True)
        yield engine
    finally:
        await engine.close()


@dataclass
class Answer:
    """All chunks of an answer, joined."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    """One per token."""
    client: list[ClientLogprob] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_string: str | None = None
    cached_tokens: int = 0
    chunks: int = 0


def request(
    prompt: list[int],
    *,
    version: int | None = None,
    top_logprobs: int | None = None,
    deadline_s: float | None = None,
    priority: int = 0,
    policy: str = POLICY,
    cache_salt: str = "",
    **sampling: object,
) -> GenerateRequest:
    """Ask for an answer."""
    settings = Sampling(**{"max_tokens": 16} | sampling)  # type: ignore[arg-type]
    return GenerateRequest(
        "r",
        prompt,
        settings,
        policy,
        version,
        top_logprobs,
        deadline_s,
        priority,
        cache_salt=cache_salt,
    )


async def answer(engine: Engine, asked: GenerateRequest, answer: Answer | None = None) -> Answer:
    """Read an answer to its end; ``answer`` can be watched meanwhile."""
    found = Answer() if answer is None else answer
    async for chunk in engine.generate(asked):
        found.ids += chunk.ids
        found.logprobs += chunk.logprobs
        found.versions += [chunk.version] * len(chunk.ids)
        found.client += chunk.client or []
        found.finish_reason, found.stop_string = chunk.finish_reason, chunk.stop_string
        found.cached_tokens += chunk.cached_tokens
        found.chunks += 1
    return found


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for a condition to hold."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nothing tells when it holds
            await asyncio.sleep(0.002)


async def until_idle(engine: Engine, seconds: float = 20.0) -> None:
    """Wait until no sequence runs."""
    async with asyncio.timeout(seconds):
        while (await engine.info()).running:  # noqa: ASYNC110 - nothing tells when it holds
            await asyncio.sleep(0.002)


def reference_logprobs(
    model: PreTrainedModel, ids: list[int], start: int, temperature: float = 1.0
) -> torch.Tensor:
    """Return the log-probabilities of ids[start:] by a plain forward pass."""
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0, start - 1 : -1].float() / temperature
        targets = torch.tensor(ids[start:])[:, None]
        return logits.log_softmax(-1).gather(-1, targets)[:, 0].clone()
