"""The forward pass of the Llama family (Llama, Mistral, Qwen2, Qwen3), made for decoding.

It computes what the transformers module computes, with fused projections, no masks, no cache
objects and logits only where asked.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PretrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from rejoinder.engine.torch_engine.attention import Attend
from rejoinder.engine.torch_engine.batch import Batch
from rejoinder.engine.torch_engine.linear import Linear

_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
_ROPE = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose angles do not depend on the length of the sequence."""


def has_full_attention(config: PretrainedConfig) -> bool:
    """Whether every layer sees all earlier tokens."""
    layer_types = getattr(config, "layer_types", None)
    if layer_types:
        return set(layer_types) == {"full_attention"}
    sliding = getattr(config, "sliding_window", None) is not None
    return not (sliding and getattr(config, "use_sliding_window", True))


def is_llama_like(config: PretrainedConfig) -> bool:
    """Whether this forward pass is right for a model."""
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    return (
        config.model_type in _FAMILIES
        and config.hidden_act == "silu"
        and rope in _ROPE
        and has_full_attention(config)
    )


class Rotary:
    """Rotary position embedding (Su et al. 2021) from a table of all positions."""

    def __init__(self, config: PretrainedConfig, context: int, like: Tensor) -> None:
        rotary = LlamaRotaryEmbedding(config).to(like.device)
        cos, sin = rotary(like, torch.arange(context, device=like.device)[None])
        half = cos.shape[-1] // 2
        self._half = half
        self._cos = cos[0]
        # Rotating x by halves is (-x2, x1) * sin; here the sign is in the table.
        self._sin = torch.cat((-sin[0, :, :half], sin[0, :, half:]), dim=-1)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors [N, 1, dim] of positions [N]."""
        return self._cos[positions][:, None], self._sin[positions][:, None]

    def rotate(self, x: Tensor, factors: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate [N, heads, dim]."""
        cos, sin = factors
        return torch.addcmul(x * cos, x.roll(self._half, dims=-1), sin)


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one decoder layer; ``qkv`` and ``gate_up`` are fused along their outputs."""

    input_norm: Tensor
    qkv: Linear
    query_norm: Tensor | None
    key_norm: Tensor | None
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Llama:
    """A model of the family. Implements ``Forward``."""

    embedding: Tensor
    layers: list[Layer]
    norm: Tensor
    head: Linear
    rotary: Rotary
    heads: int
    kv_heads: int
    head_dim: int
    eps: float

    def logits(self, batch: Batch, attention: Attend) -> Tensor:
        """See ``Forward.logits``."""
        x = self.embedding[batch.ids]
        factors = self.rotary.at(batch.positions)
        for index, layer in enumerate(self.layers):
            x = x + self._attend(index, layer, self._norm(x, layer.input_norm), factors, attention)
            gate, up = layer.gate_up(self._norm(x, layer.mlp_norm)).chunk(2, dim=-1)
            x = x + layer.down(functional.silu(gate) * up)
        if not len(batch.keep):  # the inner chunk of a prompt
            return x.new_empty((0, len(self.embedding)), dtype=torch.float32)
        return self.head(self._norm(x[batch.keep], self.norm)).float()

    def _attend(
        self,
        index: int,
        layer: Layer,
        x: Tensor,
        factors: tuple[Tensor, Tensor],
        attention: Attend,
    ) -> Tensor:
        qkv = layer.qkv(x).view(x.shape[0], -1, self.head_dim)
        rotated, values = torch.split(qkv, [self.heads + self.kv_heads, self.kv_heads], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            queries, keys = torch.split(rotated, [self.heads, self.kv_heads], dim=1)
            queries = self._norm(queries, layer.query_norm)
            rotated = torch.cat((queries, self._norm(keys, layer.key_norm)), dim=1)
        rotated = self.rotary.rotate(rotated, factors)
        queries, keys = torch.split(rotated, [self.heads, self.kv_heads], dim=1)
        out = attention(index, queries, keys, values, self.head_dim**-0.5)
        return layer.out(out)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, weight.shape, weight, self.eps)
