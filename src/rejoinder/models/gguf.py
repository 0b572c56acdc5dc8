"""From a quantised GGUF file to a Hugging Face directory. A program: see ``main``.

It runs in a process of its own, because PyTorch and the two copies of the weights would stay in
the memory of whoever asked: a gateway needs neither.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

_NOT_OURS = ("quantization_config", "_name_or_path", "_model_name_or_path")
"""What the weights no longer are, and the path of a training run that the GGUF metadata gives."""


def convert(gguf: Path, target: Path) -> None:
    """Write a GGUF file's model as fp32 safetensors with its tokenizer and chat template.

    The files are written here and not by ``save_pretrained``, which in some releases refuses
    whatever was read from GGUF, also where nothing quantised is left of it.
    """
    transformers_logging.disable_progress_bar()
    where = {"gguf_file": gguf.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **where)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **where)
    # The file says 1e30 here, and readers take it for the context.
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(target)
    save_file(_weights(model), target / "model.safetensors", metadata={"format": "pt"})
    _write_json(target / "config.json", _settings(model))
    GenerationConfig(
        bos_token_id=model.config.bos_token_id,
        eos_token_id=model.config.eos_token_id,
        pad_token_id=model.config.pad_token_id,
    ).save_pretrained(target)


def _weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return all weights in fp32; a head that is the embedding is not written twice."""
    weights = {name: value.float().contiguous() for name, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    return weights


def _settings(model: PreTrainedModel) -> dict[str, object]:
    settings = {
        name: value
        for name, value in json.loads(model.config.to_json_string()).items()
        if name not in _NOT_OURS
    }
    return settings | {"architectures": [type(model).__name__], "dtype": "float32"}


def _write_json(file: Path, settings: dict[str, object]) -> None:
    file.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")


def main() -> None:
    """``python -m rejoinder.models.gguf FILE DIRECTORY``."""
    gguf, target = (Path(argument) for argument in sys.argv[1:])
    convert(gguf, target)


if __name__ == "__main__":
    main()
