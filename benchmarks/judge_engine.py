"""An in-process engine with the embedded model's start weights, for judging without a system."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import torch

from rejoinder.config import JudgeConfig, ModelConfig, TorchEngineConfig
from rejoinder.engine.base import VersionSource
from rejoinder.engine.torch_engine.engine import TorchEngine
from rejoinder.judge.base import JudgeSetting
from rejoinder.models.embedded import resolve_model
from rejoinder.models.loading import pick_device, pick_dtype
from rejoinder.models.tokenizer import load_tokenizer
from rejoinder.types import BASE_VERSION, WeightsKind

POLICY = "default"


@asynccontextmanager
async def judge_setting(
    judge: JudgeConfig, model_path: str, threads: int | None
) -> AsyncIterator[JudgeSetting]:
    """Yield what a judge is built from, with a loaded engine of its own."""
    model = ModelConfig(path=model_path)
    directory = resolve_model(model_path)
    device = pick_device(model)
    if threads is not None:
        torch.set_num_threads(threads)
    engine = TorchEngine(
        directory, TorchEngineConfig(threads=threads), pick_dtype(model, device), device
    )
    uri = directory.as_uri()
    source = VersionSource(POLICY, BASE_VERSION, uri, WeightsKind.FULL, uri)
    await engine.load(source, live=True)
    try:
        yield JudgeSetting(judge, POLICY, engine, load_tokenizer(directory), model_path)
    finally:
        await engine.close()
