"""What a token signal may be."""

from __future__ import annotations

import numpy as np
import pytest

from rejoinder.algorithms.base import TokenSignal


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="must both be"):
        TokenSignal(np.zeros(3, np.float32), np.ones(2, np.bool_))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_advantage_that_learns_must_be_finite(bad: float) -> None:
    values = np.array([0.5, bad], np.float32)
    with pytest.raises(ValueError, match="not finite"):
        TokenSignal(values, np.array([True, True]))
    TokenSignal(values, np.array([True, False]))  # outside the mask it means nothing
