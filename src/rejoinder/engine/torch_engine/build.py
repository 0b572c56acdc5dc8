"""From the files of a policy version to a forward pass, piece by piece."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, PretrainedConfig

from rejoinder.engine.torch_engine.attention import StepAttention
from rejoinder.engine.torch_engine.batch import Span, make_batch
from rejoinder.engine.torch_engine.forward import Forward
from rejoinder.engine.torch_engine.hf_forward import HfForward
from rejoinder.engine.torch_engine.kv_cache import CacheShape, KVCache
from rejoinder.engine.torch_engine.linear import Linear, make_linear
from rejoinder.engine.torch_engine.llama import Layer, Llama, Rotary, is_llama_like
from rejoinder.engine.torch_engine.weight_files import WeightFiles
from rejoinder.errors import ConfigError
from rejoinder.models.loading import load_version, model_kind
from rejoinder.models.lora import read_lora
from rejoinder.types import WeightsKind

_ROWS = 2048
"""Rows of a large weight copied at a time."""
_PROBE_TOKENS = 4


def read_config(path: Path) -> PretrainedConfig:
    """Read a model directory's configuration.

    Raises:
        ConfigError: there is none, or transformers does not know the family.
    """
    try:
        return AutoConfig.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the model configuration in {path}: {error}") from error


def cache_shape(config: PretrainedConfig, slots: int, context: int) -> CacheShape:
    """Return the cache that a model needs."""
    heads: int = config.num_attention_heads
    return CacheShape(
        layers=config.num_hidden_layers,
        slots=slots,
        context=context,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
    )


class Builder:
    """Builds forward passes for one cache shape, device and number format."""

    def __init__(self, shape: CacheShape, dtype: torch.dtype, device: torch.device) -> None:
        self._shape = shape
        self._dtype = dtype
        self._device = device

    @torch.inference_mode()
    def build(self, path: Path, base: Path, pause: Callable[[], None]) -> Forward:
        """Build the version in ``path``: a model, or an adapter of the model in ``base``.

        Args:
            path: directory of the version.
            base: directory of the model that an adapter extends.
            pause: called between pieces of a few megabytes, so that decoding in another thread
                gets its share of the machine.

        Raises:
            ConfigError: files are missing or do not fit the engine's cache.
        """
        adapter = model_kind(path) is WeightsKind.LORA
        model = base if adapter else path
        config = read_config(model)
        if cache_shape(config, self._shape.slots, self._shape.context) != self._shape:
            raise ConfigError(f"{path}: its layers do not fit the model that the engine serves")
        try:
            if is_llama_like(config):
                files = WeightFiles(model, read_lora(path) if adapter else None)
                parts = _LlamaBuilder(files, config, self._dtype, self._device, pause)
                forward: Forward = parts.build(self._shape)
            else:
                forward = HfForward(load_version(path, base, self._dtype, self._device))
            self._probe(forward, pause)
        except RuntimeError as error:  # shapes that do not fit each other, no memory
            raise ConfigError(f"{path}: its weights cannot be used: {error}") from error
        return forward

    def _probe(self, forward: Forward, pause: Callable[[], None]) -> None:
        """Run a few tokens, so that broken weights are found before they serve anybody."""
        shape = dataclasses.replace(self._shape, slots=1, context=_PROBE_TOKENS)
        cache = KVCache(shape, self._dtype, self._device)
        ids = range(_PROBE_TOKENS)
        batch = make_batch([Span(0, 0, ids)], list(ids), _PROBE_TOKENS, self._device)
        attention = StepAttention(cache, batch, batched=False)

        def attend(*arguments: Any) -> Tensor:
            pause()
            return attention(*arguments)

        logits = forward.logits(batch, attend)
        if not bool(logits.isfinite().all()):
            raise ConfigError("its weights give logits that are not finite")


class _LlamaBuilder:
    def __init__(
        self,
        files: WeightFiles,
        config: PretrainedConfig,
        dtype: torch.dtype,
        device: torch.device,
        pause: Callable[[], None],
    ) -> None:
        self._files = files
        self._config = config
        self._dtype = dtype
        self._device = device
        self._pause = pause

    def build(self, shape: CacheShape) -> Llama:
        embedding = self._tensor("model.embed_tokens.weight")
        # A head in the file counts also where the settings tie it: so transformers reads it.
        tied = self._config.tie_word_embeddings and "lm_head.weight" not in self._files
        return Llama(
            embedding=embedding,
            layers=[self._layer(f"model.layers.{index}") for index in range(shape.layers)],
            norm=self._tensor("model.norm.weight"),
            head=make_linear(embedding) if tied else self._fused("", ["lm_head"]),
            rotary=Rotary(self._config, shape.context, embedding),
            heads=self._config.num_attention_heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            eps=self._config.rms_norm_eps,
        )

    def _layer(self, name: str) -> Layer:
        normed = f"{name}.self_attn.q_norm.weight" in self._files
        return Layer(
            input_norm=self._tensor(f"{name}.input_layernorm.weight"),
            qkv=self._fused(f"{name}.self_attn.", ["q_proj", "k_proj", "v_proj"]),
            query_norm=self._tensor(f"{name}.self_attn.q_norm.weight") if normed else None,
            key_norm=self._tensor(f"{name}.self_attn.k_norm.weight") if normed else None,
            out=self._fused(f"{name}.self_attn.", ["o_proj"]),
            mlp_norm=self._tensor(f"{name}.post_attention_layernorm.weight"),
            gate_up=self._fused(f"{name}.mlp.", ["gate_proj", "up_proj"]),
            down=self._fused(f"{name}.mlp.", ["down_proj"]),
        )

    def _tensor(self, name: str) -> Tensor:
        """Copy a weight out of its file: the mapping may go away with the file."""
        weight = self._files[name]
        out = torch.empty(weight.shape, dtype=self._dtype, device=self._device)
        for first in range(0, len(weight), _ROWS):
            out[first : first + _ROWS].copy_(weight[first : first + _ROWS])
            self._pause()
        return out

    def _fused(self, prefix: str, names: list[str]) -> Linear:
        """Return one layer with the outputs of several, in order."""
        weights = [self._files[f"{prefix}{name}.weight"].to(self._device) for name in names]
        biases = [self._files.get(f"{prefix}{name}.bias") for name in names]
        bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
        layer = make_linear(
            torch.cat(weights).to(self._dtype),
            None if bias is None else bias.to(self._device, self._dtype),
        )
        self._pause()
        return layer
