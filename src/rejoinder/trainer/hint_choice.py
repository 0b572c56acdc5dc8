"""Which of several hints teaches: by length, by chance, or by what teacher and student share."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rejoinder.config import TrainerConfig
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.distil import Candidates

_COMPARED = 4
"""Most likely tokens that hints are chosen by, where the loss does not name a number itself."""


class HintChoice:
    """Chooses among the teacher's prompts of a turn."""

    def __init__(self, candidates: Candidates, config: TrainerConfig) -> None:
        self._choice = config.teacher.choice
        self._seed = config.seed
        self.compared = candidates.count if candidates.whose == "student" else _COMPARED
        """How many likely tokens of teacher and student are compared."""

    def drawn(self, turn: SignalledTurn) -> Sequence[list[int]]:
        """Leave the prompts that have to be compared; the first is that of the longest hint.

        A random one follows from the seed and the turn alone, whatever it is packed with.
        """
        prompts = turn.teacher_prompts
        if len(prompts) < 2 or self._choice in ("overlap", "token_overlap"):
            return prompts
        if self._choice == "longest":
            return prompts[:1]
        ids = np.array([self._seed, *turn.prompt_ids, *turn.answer_ids], dtype=np.int64)
        return [prompts[zlib.crc32(ids.tobytes()) % len(prompts)]]

    def fits(self, own: Tensor, likeliest: Tensor, counts: Sequence[int]) -> Tensor:
        """Return, for each position, how many likely tokens teacher and student share there.

        For a choice by whole turns, every position has its turn's sum.

        Args:
            own: [M, C] the teacher's most likely tokens.
            likeliest: [M, C'] the student's.
            counts: positions of each turn, M together.
        """
        shared = (own[:, :, None] == likeliest[:, None, :]).any(-1).sum(-1)
        if self._choice == "token_overlap":
            return shared
        parts = torch.split(shared, list(counts))
        return torch.cat([part.sum().expand(len(part)) for part in parts])
