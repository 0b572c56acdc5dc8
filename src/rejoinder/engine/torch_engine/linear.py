"""Linear layers: packed for oneDNN on a CPU, plain elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_FASTEST_FROM = 4
"""Rows from which oneDNN's kernel reads weights at full speed: fewer take 15 % longer."""


class PlainLinear:
    """``x @ weight.T + bias``."""

    __slots__ = ("_bias", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """Map [N, in] to [N, out]."""
        return functional.linear(x, self._weight, self._bias)


class PackedLinear:
    """The same with the weight in oneDNN's blocked layout.

    A decoding step multiplies a few rows with every weight, so it is bound by reading them.
    The layout for that lets the kernel stream them at two to three times the speed of the plain
    one, for prompts too. The operators are those that PyTorch's own compiler uses.
    """

    __slots__ = ("_bias", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)  # noqa: SLF001
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """Map [N, in] to [N, out]."""
        rows = len(x)
        if rows < _FASTEST_FROM:
            x = functional.pad(x, (0, 0, 0, _FASTEST_FROM - rows))
        out: Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001
            x, self._weight, self._bias, "none", [], ""
        )
        return out[:rows]


Linear = PlainLinear | PackedLinear


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """Return the faster kind for a weight [out, in]. The packed kind copies it."""
    if weight.device.type == "cpu" and weight.dtype is torch.float32 and _can_pack():
        return PackedLinear(weight, bias)
    return PlainLinear(weight, bias)


def _can_pack() -> bool:
    built_in: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return built_in and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )
