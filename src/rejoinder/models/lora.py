"""PEFT LoRA adapter directories: reading one and merging it into base weights."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from rejoinder.errors import ConfigError
from rejoinder.types import Json

_PREFIX = "base_model.model."
_UNSUPPORTED = ("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "fan_in_fan_out")


@dataclass(frozen=True, slots=True)
class LoraDelta:
    """A low-rank change of one weight: ``scale * b @ a`` (Hu et al. 2021, section 4.1)."""

    a: Tensor
    """[rank, in]"""
    b: Tensor
    """[out, rank]"""
    scale: float
    """alpha / rank, or alpha / sqrt(rank) for rank-stabilised adapters."""

    def merged(self, weight: Tensor) -> Tensor:
        """Return a new tensor ``weight + scale * b @ a``, computed in fp32, in weight's dtype."""
        base = weight.float()
        a, b = (part.to(base.device, torch.float32) for part in (self.a, self.b))
        return torch.addmm(base, b, a, alpha=self.scale).to(weight.dtype)


def read_lora(path: Path) -> dict[str, LoraDelta]:
    """Read an adapter directory; keys are parameter names of the base model.

    Raises:
        ConfigError: the directory is not a plain LoRA adapter.
    """
    try:
        settings: Json = json.loads((path / "adapter_config.json").read_text("utf-8"))
        tensors = load_file(path / "adapter_model.safetensors")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not a LoRA adapter directory: {error}") from error
    used = [name for name in _UNSUPPORTED if settings.get(name)]
    if settings.get("peft_type") != "LORA" or settings.get("bias", "none") != "none" or used:
        raise ConfigError(
            f"{path}: only plain LoRA adapters without biases can be merged (peft_type LORA, "
            f"bias none, none of {', '.join(_UNSUPPORTED)}); this one sets {used or settings}"
        )
    rank, alpha = int(settings["r"]), float(settings["lora_alpha"])
    scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    return _pairs(path, tensors, scale)


def _pairs(path: Path, tensors: dict[str, Tensor], scale: float) -> dict[str, LoraDelta]:
    deltas: dict[str, LoraDelta] = {}
    for name, a in tensors.items():
        if not name.endswith(".lora_A.weight"):
            continue
        module = name.removesuffix(".lora_A.weight")
        b = tensors.get(f"{module}.lora_B.weight")
        if b is not None:
            deltas[module.removeprefix(_PREFIX) + ".weight"] = LoraDelta(a, b, scale)
    if not deltas or 2 * len(deltas) != len(tensors):
        raise ConfigError(f"{path}: tensors other than pairs of lora_A and lora_B, or none at all")
    return deltas
