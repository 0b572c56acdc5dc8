"""What a checkpoint of the PyTorch backend holds: tensors by kind and name, in one file."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rejoinder.errors import ConfigError

_NAME = "training.safetensors"
_KINDS = ("optimizer", "master", "served", "average", "random", "flags")
AVERAGED = "averaged"
"""The flag that the version holds an average, and not what trains."""

Parts = dict[str, dict[str, Tensor]]
"""``optimizer``: its state; ``master``: the weights in training, and ``served``: their average,
where the version's files do not hold them to the bit; ``average``: the teacher's; ``random``: the
generators'; ``flags``: their presence alone counts."""


def write_checkpoint(directory: Path, parts: Parts, device: torch.device) -> None:
    """Write parts and the state of the random generators that a device uses."""
    tensors = {
        f"{kind}/{name}": value for kind, own in parts.items() for name, value in own.items()
    }
    tensors["random/cpu"] = torch.get_rng_state()
    if device.type == "cuda":
        tensors["random/cuda"] = torch.cuda.get_rng_state(device)
    save_file(tensors, directory / _NAME)


def read_checkpoint(directory: Path) -> Parts:
    """Return what was written, empty where a kind was not.

    Raises:
        ConfigError: there is no readable checkpoint.
    """
    file = directory / _NAME
    try:
        tensors = load_file(file)
    except (OSError, ValueError, SafetensorError) as error:
        raise ConfigError(f"cannot read the checkpoint {file}: {error}") from error
    parts: Parts = {kind: {} for kind in _KINDS}
    for key, value in tensors.items():
        kind, _, name = key.partition("/")
        parts.setdefault(kind, {})[name] = value
    if "cpu" not in parts["random"]:
        raise ConfigError(f"the checkpoint {file} is not whole: it has no state of random numbers")
    return parts


def restore_random(parts: Parts, device: torch.device) -> None:
    """Go on with the random numbers where the checkpoint was written."""
    torch.set_rng_state(parts["random"]["cpu"])
    if device.type == "cuda" and "cuda" in parts["random"]:
        torch.cuda.set_rng_state(parts["random"]["cuda"], device)
