"""From files to a module: devices, formats, versions and adapters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from rejoinder.config import ModelConfig
from rejoinder.errors import ConfigError
from rejoinder.models.loading import load_model, load_version, model_kind, pick_device, pick_dtype
from rejoinder.models.lora import read_lora
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import WeightsKind
from tiny_model import save_tiny_model

CPU = torch.device("cpu")
IDS = torch.tensor([[40, 41, 42, 43]])


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: ModelTokenizer) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("base"), tiny_tokenizer)


def _adapter(model_dir: Path, target: Path, **settings: object) -> Path:
    options = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"]} | settings
    model = get_peft_model(load_model(model_dir, torch.float32, CPU), LoraConfig(**options))
    torch.manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    model.save_pretrained(target)
    return target


@pytest.mark.parametrize("stabilised", [False, True])
def test_a_merged_adapter_computes_what_the_adapter_computes(
    stabilised: bool, model_dir: Path, tmp_path: Path
):
    adapter = _adapter(model_dir, tmp_path, use_rslora=stabilised)
    base = load_model(model_dir, torch.float32, CPU)
    merged = load_version(adapter, model_dir, torch.float32, CPU)
    with torch.inference_mode():
        plain = base(IDS).logits
        expected = PeftModel.from_pretrained(base, adapter).eval()(IDS).logits
        assert torch.allclose(merged(IDS).logits, expected, atol=1e-4)
        assert not torch.allclose(plain, expected, atol=1e-2)


def test_a_full_version_is_loaded_as_it_is(model_dir: Path):
    model = load_version(model_dir, model_dir, torch.bfloat16, CPU)
    assert model.dtype is torch.bfloat16
    assert not model.training


def test_the_kind_of_a_directory_is_seen_from_its_files(model_dir: Path, tmp_path: Path):
    assert model_kind(model_dir) is WeightsKind.FULL
    assert model_kind(_adapter(model_dir, tmp_path / "adapter")) is WeightsKind.LORA
    with pytest.raises(ConfigError, match="neither"):
        model_kind(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"use_dora": True}, {"bias": "all"}, {"peft_type": "IA3"}, {"rank_pattern": {"q_proj": 2}}],
)
def test_adapters_that_cannot_be_merged_are_refused(
    change: dict[str, object], model_dir: Path, tmp_path: Path
):
    file = _adapter(model_dir, tmp_path) / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ConfigError, match="plain LoRA"):
        read_lora(tmp_path)


def test_an_adapter_of_another_model_is_refused(
    model_dir: Path, tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    other = save_tiny_model(tmp_path / "other", tiny_tokenizer, num_hidden_layers=5)
    adapter = _adapter(other, tmp_path / "adapter")
    with pytest.raises(ConfigError, match=r"has no weight model\.layers"):
        load_version(adapter, model_dir, torch.float32, CPU)


def test_a_directory_without_an_adapter_or_model_is_a_clear_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="not a LoRA adapter"):
        read_lora(tmp_path)
    with pytest.raises(ConfigError, match="cannot load"):
        load_model(tmp_path, torch.float32, CPU)


def test_auto_means_float32_on_a_cpu_and_bfloat16_on_cuda():
    assert pick_dtype(ModelConfig(), CPU) is torch.float32
    assert pick_dtype(ModelConfig(), torch.device("cuda")) is torch.bfloat16
    assert pick_dtype(ModelConfig(dtype="float32"), torch.device("cuda")) is torch.float32


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_there_is_refused(device: str):
    with pytest.raises(ConfigError, match=r"model\.device"):
        pick_device(ModelConfig(device=device))
