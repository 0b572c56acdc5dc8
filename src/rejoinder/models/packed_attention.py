"""Packing: several sequences in one row, none of which attends to another.

Packed sequences stand one after the other in a batch of one row, each with positions from 0. An
attention function registered with transformers cuts queries, keys and values at the borders and
attends within each piece; no mask of tokens x tokens exists. On CUDA one flash-attention call
does it for all pieces.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from rejoinder.errors import ConfigError

_NAME = "rejoinder_packed"


@dataclass(frozen=True, slots=True)
class Segments:
    """Where packed sequences begin and end."""

    lengths: tuple[int, ...]
    borders: Tensor
    """[sequences + 1] int32: 0, then where each sequence ends."""

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> Segments:
        """Build from the sequences' lengths, each above 0."""
        borders = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        return cls(tuple(lengths), borders.to(device))

    @property
    def positions(self) -> Tensor:
        """[1, N] positions, from 0 in each sequence."""
        parts = [torch.arange(length) for length in self.lengths]
        return torch.cat(parts).to(self.borders.device)[None]


def use_packed_attention(model: PreTrainedModel) -> None:
    """Replace a model's attention by the packed one.

    Raises:
        ConfigError: the model has attention other than full causal.
    """
    config = model.config
    windowed = getattr(config, "sliding_window", None) is not None
    default = ["sliding_attention" if windowed else "full_attention"]
    layer_types = set(getattr(config, "layer_types", None) or default)
    capped = getattr(config, "attn_logit_softcapping", None) is not None
    if layer_types != {"full_attention"} or capped:
        kinds = sorted(layer_types) + ["capped scores"] * capped
        raise ConfigError(
            f"model.path: the trainer packs models with full causal attention, and this "
            f"{config.model_type} has {', '.join(kinds)}: choose another model"
        )
    model.set_attn_implementation(_NAME)


def packed_hidden(decoder: torch.nn.Module, ids: Tensor, segments: Segments) -> Tensor:
    """Return the last hidden states [N, H] of packed sequences.

    Args:
        decoder: the model without its head, after ``use_packed_attention``.
        ids: [1, N] their ids, one after the other.
        segments: where each begins and ends.
    """
    out = decoder(
        input_ids=ids,
        position_ids=segments.positions,
        use_cache=False,
        packed_segments=segments,
    )
    hidden: Tensor = out.last_hidden_state[0]
    return hidden


def _attend(
    module: torch.nn.Module,  # noqa: ARG001 - the interface's name
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001 - the interface's name; borders are enough
    *,
    packed_segments: Segments,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend [1, heads, N, dim] within segments; returns [1, N, heads, dim] (their interface)."""
    query, key, value = _in_one_format(query, key, value)
    if _has_kernel(query):
        return _attend_by_kernel(query, key, value, packed_segments, scaling), None
    grouped = query.shape[1] != key.shape[1]
    lengths = list(packed_segments.lengths)
    # Splitting gathers the pieces' gradients in one copy; slices would each make a full-size one.
    pieces = [
        scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=grouped)
        for q, k, v in zip(
            torch.split(query, lengths, dim=2),
            torch.split(key, lengths, dim=2),
            torch.split(value, lengths, dim=2),
            strict=True,
        )
    ]
    return torch.cat(pieces, dim=2).transpose(1, 2).contiguous(), None


def _in_one_format(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Apply autocast, which rotary embeddings in fp32 undo for queries and keys."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(tensor.to(dtype) for tensor in tensors)


def _attend_by_kernel(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, scaling: float | None
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    longest = max(segments.lengths)
    out = varlen_attn(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        segments.borders,
        segments.borders,
        longest,
        longest,
        scale=scaling,
        window_size=(-1, 0),  # causal
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(out, Tensor)
    return out[None]


def _has_kernel(query: Tensor) -> bool:
    """Whether the flash-attention kernel takes these inputs."""
    return (
        query.is_cuda
        and query.dtype in (torch.bfloat16, torch.float16)
        and query.shape[-1] % 8 == 0
        and query.shape[-1] <= 256
        and _kernel_is_there()
    )


@cache
def _kernel_is_there() -> bool:
    """Whether this PyTorch has the kernel, with causal windows and grouped heads (2.11 on)."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return {"window_size", "enable_gqa"} <= inspect.signature(varlen_attn).parameters.keys()


def _no_mask(*_: Any, **__: Any) -> None:
    """Borders take the mask's place."""


AttentionInterface.register(_NAME, _attend)
AttentionMaskInterface.register(_NAME, _no_mask)
