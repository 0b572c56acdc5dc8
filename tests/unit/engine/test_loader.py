"""Loading beside decoding: it gives way, and whatever is broken concerns the version only."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rejoinder.engine.base import ScoreRequest
from rejoinder.engine.torch_engine import loader
from rejoinder.engine.torch_engine.loader import Loader
from rejoinder.errors import EngineUnavailable, UnknownVersion
from rejoinder.models.loading import load_model
from rejoinder.models.tokenizer import ModelTokenizer
from tiny_model import (
    POLICY,
    answer,
    reference_logprobs,
    request,
    save_tiny_model,
    source,
    torch_engine,
)

PROMPT = list(range(40, 60))


class _Observer:
    """A builder that notes what its thread is like."""

    def __init__(self) -> None:
        self.threads = 0
        self.nice = -1

    def build(self, *_: object) -> Any:
        self.threads = torch.get_num_threads()
        self.nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
async def test_loading_takes_one_core_at_low_priority_and_leaves_other_threads_alone(
    tiny_models: list[Path],
):
    """Guards against loads that compete with decoding and stall it."""
    before = torch.get_num_threads(), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    observer = _Observer()
    found = Loader(observer, lambda: True)  # type: ignore[arg-type]
    # As the engine's thread does, which starts later: it must not change the loader's number.
    await asyncio.to_thread(torch.set_num_threads, max(2, before[0]))
    await found.build(source(tiny_models[0]))
    await asyncio.to_thread(torch.set_num_threads, before[0])
    found.close()
    assert observer.threads == 1
    assert observer.nice >= 5
    after = torch.get_num_threads(), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert after == before


async def test_a_closed_engine_says_so_to_who_wants_to_load(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0]) as engine:
        await engine.close()
        with pytest.raises(EngineUnavailable):
            await engine.load(source(tiny_models[1], 1), live=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model.safetensors.index.json", "no JSON"),
        ("model.safetensors.index.json", '{"metadata": {}}'),
        ("model.safetensors", "no tensors"),
        ("config.json", '{"model_type": "llama", "hidden_size": "many"}'),
    ],
)
async def test_files_broken_in_any_way_are_a_version_that_cannot_be_loaded(
    tiny_models: list[Path], tmp_path: Path, tiny_tokenizer: ModelTokenizer, name: str, text: str
):
    """Guards against readers' own exceptions, which would end who follows the registry."""
    broken = save_tiny_model(tmp_path, tiny_tokenizer)
    (broken / name).write_text(text)
    async with torch_engine(tiny_models[0]) as engine:
        with pytest.raises(UnknownVersion, match="version 1"):
            await engine.load(source(broken, 1), live=True)
        assert (await answer(engine, request(PROMPT))).finish_reason is not None


async def test_a_head_in_the_file_counts_also_where_the_settings_tie_it(
    tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    """As transformers reads it: engine and trainer must use the same head (rule 8)."""
    path = save_tiny_model(tmp_path, tiny_tokenizer, tie_word_embeddings=True)
    weights = load_file(path / "model.safetensors")
    stray = torch.randn_like(weights["model.embed_tokens.weight"])
    save_file(weights | {"lm_head.weight": stray}, path / "model.safetensors", {"format": "pt"})
    model = load_model(path, torch.float32, torch.device("cpu"))
    async with torch_engine(path) as engine:
        scored = await engine.score(ScoreRequest("s", PROMPT, POLICY))
    expected = reference_logprobs(model, PROMPT, 1)
    assert torch.tensor(scored.logprobs) == pytest.approx(expected, abs=1e-4)


async def test_a_missing_head_is_not_replaced_by_the_embedding(
    tiny_models: list[Path], tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    path = save_tiny_model(tmp_path, tiny_tokenizer, tie_word_embeddings=False)
    weights = load_file(path / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, path / "model.safetensors", {"format": "pt"})
    async with torch_engine(tiny_models[0]) as engine:
        with pytest.raises(UnknownVersion, match="lm_head"):
            await engine.load(source(path, 1), live=True)


@pytest.mark.skipif(loader._malloc_trim is None, reason="another allocator")
def test_the_memory_of_freed_weights_goes_back_to_the_system():
    """Guards against a heap that keeps a whole version, and grows with every load."""
    torch.empty(30 << 20, dtype=torch.uint8)  # from now on glibc takes such blocks from its heap
    weights: list[Any] = []
    between: list[torch.Tensor] = []
    for _ in range(60):
        weights.append(torch.ones(4 << 20, dtype=torch.uint8))
        between.append(torch.ones(64 << 10, dtype=torch.uint8))
    before = _resident_mib()
    loader._free(weights)
    assert before - _resident_mib() > 200


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * resource.getpagesize() / 2**20
