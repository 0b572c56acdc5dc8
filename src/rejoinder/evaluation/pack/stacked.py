"""Policies of one architecture with their weights stacked: one matrix product serves them all.

Shapes: S seats (policies), B rows of each, T ids of a row, H width. Rows are padded on the left, so
that the newest token of all rows stands in one column.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from rejoinder.errors import ConfigError
from rejoinder.models.loading import load_model

EMBEDDING = "model.embed_tokens.weight"
_NORM = "model.norm.weight"
_HEAD = "lm_head.weight"
_LAYER = (
    "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
    "self_attn.o_proj", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
)  # fmt: skip


class JoinedLayer(NamedTuple):
    """A layer's weights with those that read the same states in one tensor."""

    attention_norm: Tensor
    projections: Tensor
    """Of queries, keys and values."""
    output: Tensor
    mlp_norm: Tensor
    gate_and_up: Tensor
    down: Tensor


class StackedModel:
    """Weights of S policies of the Llama family, in fp32."""

    def __init__(self, directory: Path, seats: int, device: torch.device) -> None:
        """Load a model and copy it to every seat.

        Raises:
            ConfigError: it is no model that can be stacked.
        """
        module = load_model(directory, torch.float32, device)
        config = module.config
        has_bias = config.model_type == "llama" and (config.attention_bias or config.mlp_bias)
        if config.model_type != "llama" or config.hidden_act != "silu" or has_bias:
            raise ConfigError(
                f"model.path: {directory} is of the family {config.model_type!r}, and packed runs "
                "know plain Llama models alone: make the runs one by one"
            )
        state = module.state_dict()
        if config.tie_word_embeddings:
            del state[_HEAD]
        self.weights: dict[str, Tensor] = {
            name: weight[None].repeat(seats, *[1] * weight.dim()) for name, weight in state.items()
        }
        self.device = device
        self.seats = seats
        self.layers: int = config.num_hidden_layers
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self._eps: float = config.rms_norm_eps
        self._rotary = LlamaRotaryEmbedding(config).to(device)

    @property
    def head(self) -> Tensor:
        """[S, V, H] the output heads."""
        return self.weights.get(_HEAD, self.weights[EMBEDDING])

    def twin(self) -> StackedModel:
        """Return a model that computes alike, with weights of its own, the same for now."""
        other = copy.copy(self)
        other.weights = {name: weight.detach().clone() for name, weight in self.weights.items()}
        return other

    def hidden(self, ids: Tensor, mask: Tensor, *, saves_memory: bool = False) -> Tensor:
        """Return the last hidden states [S, B, T, H].

        Args:
            ids: [S, B, T].
            mask: [S, B, T] bool, false where there is padding.
            saves_memory: compute the inside of layers again for the gradient instead of keeping it.
        """
        seats, rows, length = ids.shape
        x = self.embed(ids)
        flat = mask.flatten(0, 1)
        factors = self.rotary(positions_of(flat))
        seen = visible(flat)
        for number in range(self.layers):
            layer = self.layer(number)
            if saves_memory:
                x = checkpoint(self._block, x, factors, seen, rows, *layer, use_reentrant=False)
            else:
                x = self._block(x, factors, seen, rows, *layer)
        return self.norm(x, self.weights[_NORM]).view(seats, rows, length, -1)

    def embed(self, ids: Tensor) -> Tensor:
        """Return [S, B * T, H]."""
        table = self.weights[EMBEDDING]
        offset = torch.arange(self.seats, device=self.device)[:, None] * table.shape[1]
        return functional.embedding(ids.reshape(self.seats, -1) + offset, table.flatten(0, 1))

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors [S * B, 1, T, D] of positions [S * B, T]; see ``rotate``."""
        cos, sin = self._rotary(self.weights[EMBEDDING], positions)
        first, second = sin.chunk(2, dim=-1)
        return cos[:, None], torch.cat((-first, second), dim=-1)[:, None]

    def layer(self, number: int) -> list[Tensor]:
        """Return a layer's weights in the order of ``_LAYER``."""
        return [self.weights[f"model.layers.{number}.{name}.weight"] for name in _LAYER]

    def project(
        self, x: Tensor, factors: tuple[Tensor, Tensor], rows: int, layer: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values [S * B, heads, T, D] of states [S, B * T, H]."""
        x = self.norm(x, layer[0])
        queries = self._split(x, layer[1], rows, self.heads)
        keys = self._split(x, layer[2], rows, self.kv_heads)
        values = self._split(x, layer[3], rows, self.kv_heads)
        return rotate(queries, factors), rotate(keys, factors), values

    def joined(self, number: int) -> JoinedLayer:
        """Return a layer's weights for few ids at a time, where each product costs its launch."""
        layer = self.layer(number)
        return JoinedLayer(
            layer[0], torch.cat(layer[1:4], 1), layer[4],
            layer[5], torch.cat(layer[6:8], 1), layer[8],
        )  # fmt: skip

    def finish(self, x: Tensor, attended: Tensor, layer: list[Tensor]) -> Tensor:
        """Return a layer's output [S, B * T, H] from what attention gave [S, B * T, heads * D]."""
        x = x + torch.bmm(attended, layer[4].mT)
        inner = self.norm(x, layer[5])
        gate = functional.silu(torch.bmm(inner, layer[6].mT))
        return x + torch.bmm(gate * torch.bmm(inner, layer[7].mT), layer[8].mT)

    def last_norm(self, x: Tensor) -> Tensor:
        """Normalise the last layer's output [S, N, H]."""
        return self.norm(x, self.weights[_NORM])

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return RMS-normalised states [S, N, H] by weights [S, H]."""
        return functional.rms_norm(x, x.shape[-1:], eps=self._eps) * weight[:, None]

    def _block(
        self,
        x: Tensor,
        factors: tuple[Tensor, Tensor],
        seen: Tensor,
        rows: int,
        *layer: Tensor,
    ) -> Tensor:
        queries, keys, values = self.project(x, factors, rows, list(layer))
        return self.finish(x, self.attend(queries, keys, values, seen), list(layer))

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
        """Return what whole rows attend to, [S, B * T, heads * D]; see ``project``, ``visible``."""
        group = self.heads // self.kv_heads
        attended = functional.scaled_dot_product_attention(
            queries,
            keys.repeat_interleave(group, 1),
            values.repeat_interleave(group, 1),
            attn_mask=seen,
        )
        return attended.transpose(1, 2).reshape(self.seats, -1, self.heads * self.head_dim)

    def _split(self, x: Tensor, weight: Tensor, rows: int, heads: int) -> Tensor:
        """Return [S * B, heads, T, D]."""
        projected = torch.bmm(x, weight.mT)
        return projected.view(self.seats * rows, -1, heads, self.head_dim).transpose(1, 2)


@torch.no_grad()
def copy_seat(source: StackedModel, place: int, target: StackedModel, seat: int) -> None:
    """Give a seat of ``target`` the weights of a place of ``source``."""
    for name, weight in target.weights.items():
        weight[seat] = source.weights[name][place]


def padded_groups(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group rows, the longest first, so that few groups are needed and padding counts, too.

    Args:
        lengths: ids of each row.
        budget: most ids of a group, padded to its longest row; a longer row stands alone.

    Returns:
        groups of indices into ``lengths``.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        last = groups[-1] if groups else []
        if last and lengths[last[0]] * (len(last) + 1) <= budget:
            last.append(index)
        else:
            groups.append([index])
    return groups


def left_padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return ids [N, T] of rows padded on the left, and which are no padding [N, T] bool."""
    longest = max(map(len, rows))
    ids = np.zeros((len(rows), longest), dtype=np.int64)
    for own, row in zip(ids, rows, strict=True):
        own[longest - len(row) :] = row
    lengths = torch.tensor([len(row) for row in rows])
    return torch.from_numpy(ids), torch.arange(longest) >= longest - lengths[:, None]


def positions_of(mask: Tensor) -> Tensor:
    """Return the place of each id in its row; padding has 0."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


def visible(mask: Tensor) -> Tensor:
    """Return [N, 1, T, T]: which earlier ids each id sees. Padding sees itself, and nothing NaN."""
    length = mask.shape[-1]
    itself = torch.eye(length, dtype=torch.bool, device=mask.device)
    return (torch.ones_like(itself).tril() & (mask[:, None] | itself))[:, None]


def rotate(x: Tensor, factors: tuple[Tensor, Tensor]) -> Tensor:
    """Turn queries or keys [N, heads, T, D] to their positions (Su et al. 2021)."""
    cos, sin = factors
    first, second = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat((second, first), dim=-1), sin)
