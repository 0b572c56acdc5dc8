"""What the engine needs of a model: logits of some of a batch's tokens."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from rejoinder.engine.torch_engine.attention import Attend
from rejoinder.engine.torch_engine.batch import Batch


class Forward(Protocol):
    """A model with fixed weights. Two implementations: ``llama`` and ``hf_forward``."""

    def logits(self, batch: Batch, attention: Attend) -> Tensor:
        """Run a step; return the logits [M, vocabulary] of ``batch.keep``, in fp32."""
        ...
