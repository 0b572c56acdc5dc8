"""Named weights of a model directory, read one by one, with an adapter merged on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from rejoinder.errors import ConfigError
from rejoinder.models.lora import LoraDelta


class WeightFiles:
    """The safetensors files of a directory (one, or several with an index), memory-mapped."""

    def __init__(self, path: Path, deltas: dict[str, LoraDelta] | None = None) -> None:
        self._path = path
        self._deltas = deltas or {}
        files = sorted({path / name for name in _file_names(path)})
        self._files: dict[str, Any] = {}
        for file in files:
            try:
                opened: Any = safe_open(file, framework="pt")
            except Exception as error:  # SafetensorError is not importable from its package
                raise ConfigError(f"cannot read the weights in {file}: {error}") from error
            self._files |= dict.fromkeys(opened.keys(), opened)
        missing = sorted(set(self._deltas) - set(self._files))
        if missing:
            raise ConfigError(f"{path} lacks the weight {missing[0]} that the adapter changes")

    def __contains__(self, name: str) -> bool:
        """Whether there is a weight of this name."""
        return name in self._files

    def __getitem__(self, name: str) -> Tensor:
        """Read a weight, with its adapter merged in fp32.

        Raises:
            ConfigError: there is none of this name.
        """
        if name not in self._files:
            raise ConfigError(f"{self._path} lacks the weight {name}")
        weight: Tensor = self._files[name].get_tensor(name)
        delta = self._deltas.get(name)
        return weight if delta is None else delta.merged(weight)

    def get(self, name: str) -> Tensor | None:
        """Read a weight that some models lack."""
        return self[name] if name in self else None  # noqa: SIM401 - there is no other get


def _file_names(path: Path) -> list[str]:
    index = path / "model.safetensors.index.json"
    if index.is_file():
        return list(json.loads(index.read_text("utf-8"))["weight_map"].values())
    return ["model.safetensors"]
