"""Rule 8: the engine's logprobs are those of the transformers module that the trainer uses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from rejoinder.engine.base import ScoreRequest, VersionSource
from rejoinder.engine.torch_engine.build import read_config
from rejoinder.engine.torch_engine.llama import is_llama_like
from rejoinder.errors import ConfigError, UnknownVersion
from rejoinder.models.loading import load_model
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import WeightsKind
from tiny_model import (
    POLICY,
    answer,
    reference_logprobs,
    request,
    save_tiny_model,
    source,
    torch_engine,
)

CPU = torch.device("cpu")
PROMPTS = [list(range(40, 40 + size)) for size in (3, 16, 17, 50, 90)]

FAMILIES: dict[str, dict[str, object]] = {
    "llama": {},
    "llama-tied": {"tie_word_embeddings": True},
    "llama-rope-scaled": {
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    },
    "llama-biased": {"attention_bias": True, "mlp_bias": True},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
}
OTHER_FAMILIES: dict[str, dict[str, object]] = {
    "olmo2": {},
    "granite": {"logits_scaling": 4.0, "attention_multiplier": 0.2},
    "phi3": {"sliding_window": None},
}


async def _assert_parity(path: Path) -> None:
    model = load_model(path, torch.float32, CPU)
    async with torch_engine(path) as engine:
        asked = [request(prompt, temperature=0.8, max_tokens=20) for prompt in PROMPTS]
        answers = await asyncio.gather(*[answer(engine, one) for one in asked])
        for prompt, found in zip(PROMPTS, answers, strict=True):
            expected = reference_logprobs(model, prompt + found.ids, len(prompt), 0.8)
            assert torch.tensor(found.logprobs) == pytest.approx(expected, abs=2e-4)
        ids = PROMPTS[-1]
        scored = await engine.score(ScoreRequest("s", ids, POLICY, start=3, temperature=0.8))
        expected = reference_logprobs(model, ids, 3, 0.8)
        assert torch.tensor(scored.logprobs) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("family", FAMILIES)
async def test_sampled_and_scored_logprobs_equal_a_full_forward_pass(
    family: str, tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    settings = FAMILIES[family]
    path = save_tiny_model(tmp_path, tiny_tokenizer, family.partition("-")[0], **settings)
    assert is_llama_like(read_config(path))
    await _assert_parity(path)


@pytest.mark.parametrize("family", OTHER_FAMILIES)
async def test_other_families_run_through_their_own_module_with_the_same_logprobs(
    family: str, tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    path = save_tiny_model(tmp_path, tiny_tokenizer, family, **OTHER_FAMILIES[family])
    assert not is_llama_like(read_config(path))
    await _assert_parity(path)


async def test_families_with_sliding_windows_are_refused_with_a_reason(
    tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    path = save_tiny_model(tmp_path, tiny_tokenizer, "mistral", sliding_window=8)
    with pytest.raises(UnknownVersion, match="full causal attention in all layers"):
        async with torch_engine(path):
            pass


@pytest.fixture
def adapter(tiny_models: list[Path], tmp_path: Path) -> Path:
    """A LoRA adapter of the first tiny model that changes its logprobs a lot."""
    model = get_peft_model(
        load_model(tiny_models[0], torch.float32, CPU),
        LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"]),
    )
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


async def test_an_adapter_version_gives_the_logprobs_of_the_unmerged_adapter(
    tiny_models: list[Path], adapter: Path
):
    from peft import PeftModel

    base = load_model(tiny_models[0], torch.float32, CPU)
    ids = PROMPTS[2]
    before = reference_logprobs(base, ids, 1)
    expected = reference_logprobs(PeftModel.from_pretrained(base, adapter).eval(), ids, 1)
    assert (before - expected).abs().mean() > 0.1
    async with torch_engine(tiny_models[0]) as engine:
        where = VersionSource(POLICY, 1, str(adapter), WeightsKind.LORA, str(tiny_models[0]))
        await engine.load(where, live=True)
        scored = await engine.score(ScoreRequest("s", ids, POLICY))
        assert scored.version == 1
        assert torch.tensor(scored.logprobs) == pytest.approx(expected, abs=2e-4)


async def test_weights_that_are_not_finite_are_refused_and_the_old_ones_serve_on(
    tiny_models: list[Path], tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    model = load_model(tiny_models[1], torch.float32, CPU)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0, 0] = float("nan")
    broken = save_tiny_model(tmp_path, tiny_tokenizer)
    model.save_pretrained(broken)
    async with torch_engine(tiny_models[0]) as engine:
        with pytest.raises(UnknownVersion, match="not finite"):
            await engine.load(source(broken, 1), live=True)
        assert (await engine.info()).live == {POLICY: 0}
        assert (await answer(engine, request(PROMPTS[0]))).versions[0] == 0


@pytest.mark.parametrize("damage", ["truncated", "missing", "other shape"])
async def test_a_damaged_version_is_refused_with_its_path(
    damage: str, tiny_models: list[Path], tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    settings = {"intermediate_size": 64, "hidden_size": 96} if damage == "other shape" else {}
    path = save_tiny_model(tmp_path / "damaged", tiny_tokenizer, seed=5, **settings)
    weights = path / "model.safetensors"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif damage == "missing":
        weights.unlink()
    async with torch_engine(tiny_models[0]) as engine:
        with pytest.raises(UnknownVersion, match="damaged"):
            await engine.load(source(path, 1), live=True)
        assert (await answer(engine, request(PROMPTS[0]))).finish_reason is not None


async def test_a_context_that_does_not_fit_into_memory_says_what_to_lower(tiny_models: list[Path]):
    with pytest.raises(ConfigError, match="cache_slots"):
        async with torch_engine(tiny_models[0], cache_slots=10**12):
            pass
