"""Other families: the transformers module itself, with its attention replaced by ours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from rejoinder.engine.torch_engine.attention import Attend
from rejoinder.engine.torch_engine.batch import Batch
from rejoinder.engine.torch_engine.llama import has_full_attention
from rejoinder.errors import ConfigError

_NAME = "rejoinder_slots"


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001 - the interface's name; slots need no mask
    *,
    step_attention: Attend,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend [1, heads, N, dim] through the slots; returns [1, N, heads, dim] (their interface)."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    queries, keys, values = (part[0].transpose(0, 1).contiguous() for part in (query, key, value))
    out = step_attention(int(module.layer_idx), queries, keys, values, scale)  # type: ignore[arg-type]
    return out.view(1, *queries.shape), None


def _no_mask(*_: Any, **__: Any) -> None:
    """Masks come from the slots."""


AttentionInterface.register(_NAME, _attend)
AttentionMaskInterface.register(_NAME, _no_mask)


class HfForward:
    """Any decoder of transformers with plain causal attention. Implements ``Forward``."""

    def __init__(self, model: PreTrainedModel) -> None:
        _refuse_other_attention(model)
        model.set_attn_implementation(_NAME)
        self._model = model

    def logits(self, batch: Batch, attention: Attend) -> Tensor:
        """See ``Forward.logits``."""
        out = self._model(
            input_ids=batch.ids[None],
            position_ids=batch.positions[None],
            use_cache=False,
            logits_to_keep=batch.keep,
            step_attention=attention,
        )
        logits: Tensor = out.logits[0].float()
        return logits


def _refuse_other_attention(model: PreTrainedModel) -> None:
    config = model.config
    if not has_full_attention(config) or getattr(config, "attn_logit_softcapping", None):
        raise ConfigError(
            f"the torch engine serves models with plain full causal attention in all layers, and "
            f"{config.model_type} is not one: serve it with another engine"
        )
