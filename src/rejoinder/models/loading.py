"""From model files to a ready module: device, number format, and adapters merged."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from rejoinder.config import ModelConfig
from rejoinder.errors import ConfigError
from rejoinder.models.lora import read_lora
from rejoinder.types import WeightsKind


def pick_device(config: ModelConfig) -> torch.device:
    """Return the device that ``model.device`` names.

    Raises:
        ConfigError: it names a CUDA device that this machine or this PyTorch does not have.
    """
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(config.device)
    except RuntimeError as error:
        raise ConfigError(f"model.device: {config.device!r} is not a device: {error}") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"model.device: {config.device!r} is not there (CUDA devices seen: "
            f"{torch.cuda.device_count()}); set it to 'cpu' or install a CUDA build of PyTorch"
        )
    return device


def pick_dtype(config: ModelConfig, device: torch.device) -> torch.dtype:
    """Return the number format of the weights: ``auto`` is bfloat16 on CUDA, else float32."""
    if config.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[config.dtype]


def model_kind(path: Path) -> WeightsKind:
    """Return what a version's directory holds.

    Raises:
        ConfigError: it holds neither a model nor an adapter.
    """
    if (path / "adapter_config.json").is_file():
        return WeightsKind.LORA
    if (path / "config.json").is_file():
        return WeightsKind.FULL
    raise ConfigError(f"{path} holds neither a model (config.json) nor an adapter")


def load_model(path: Path, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """Load a model directory for inference (about 1 s for 135 M parameters).

    Code inside the directory is never run.

    Raises:
        ConfigError: transformers cannot read it.
    """
    transformers_logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"cannot load the model in {path}: {error}") from error
    module: PreTrainedModel = model.to(device).eval()
    return module


def load_version(
    path: Path, base: Path, dtype: torch.dtype, device: torch.device
) -> PreTrainedModel:
    """Load a policy version: a full model in ``path``, or ``base`` with the adapter in ``path``.

    Adapters are merged in fp32 and rounded to ``dtype`` once.

    Raises:
        ConfigError: files are missing or do not fit each other.
    """
    if model_kind(path) is WeightsKind.FULL:
        return load_model(path, dtype, device)
    model = load_model(base, torch.float32, device)
    merge_lora(model, path)
    merged: PreTrainedModel = model.to(dtype)
    return merged


def merge_lora(model: PreTrainedModel, adapter: Path) -> None:
    """Add an adapter directory to a model's weights, in place.

    Raises:
        ConfigError: the adapter names weights that the model lacks.
    """
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, delta in read_lora(adapter).items():
            if name not in parameters:
                raise ConfigError(f"{adapter}: the base model has no weight {name}")
            parameters[name].copy_(delta.merged(parameters[name]))
