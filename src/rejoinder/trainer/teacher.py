"""The teacher: the same answers, scored by weights that have the hint in their prompt.

It computes what the student computes, with the same code (rule 8): with the same weights and a hint
that changes nothing, both say the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rejoinder.algorithms.base import TokenSignal
from rejoinder.config import HintChoice
from rejoinder.errors import ConfigError
from rejoinder.models.logprobs import chunked_logprobs, chunked_top
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.batching import MicroBatch, pack
from rejoinder.trainer.distil import Candidates
from rejoinder.trainer.model import TrainModel

_COMPARED = 4
"""Most likely tokens that hints are chosen by, where the loss does not name a number itself."""
_PROBES = (([1, 5, 9], [2, 7, 3]), ([4, 8], [6, 1, 2, 5]))
"""Ids of two short turns; every vocabulary has them."""


class Teacher:
    """Scores the hinted turns of one micro-batch after the other."""

    def __init__(self, candidates: Candidates, choice: HintChoice, chunk: int, seed: int) -> None:
        self._candidates = candidates
        self._choice = choice
        self._chunk = chunk
        self._random = random.Random(seed)  # noqa: S311 - a choice among hints

    @torch.no_grad()
    def score(
        self,
        teacher: TrainModel,
        student: TrainModel,
        student_hidden: Tensor,
        batch: MicroBatch,
        turns: Sequence[SignalledTurn],
    ) -> tuple[Tensor, Tensor]:
        """Choose tokens to compare and return what the teacher says of them.

        Args:
            teacher: the weights that read hints.
            student: the weights in training.
            student_hidden: [M, H] last hidden states under them.
            batch: the turns, packed: M positions that learn.
            turns: as packed, at least one of them with a hint.

        Returns:
            ids [M, K] and log-probabilities [M, K] fp32. Rows of turns without a hint hold ids of
            the vocabulary and finite values that mean nothing.
        """
        compared = self._candidates.count if self._candidates.whose == "student" else _COMPARED
        likeliest = self._likeliest(student, student_hidden, batch.temperature, compared)
        hidden = self._hidden(teacher, batch, turns, likeliest)
        match self._candidates.whose:
            case "sampled":
                ids = batch.targets[:, None]
            case "student":
                ids = likeliest
            case "teacher":
                ids = self._likeliest(teacher, hidden, batch.temperature, self._candidates.count)
        logprobs, _ = chunked_logprobs(hidden, teacher.head, ids, batch.temperature, self._chunk)
        return ids, logprobs

    def _hidden(
        self,
        teacher: TrainModel,
        batch: MicroBatch,
        turns: Sequence[SignalledTurn],
        likeliest: Tensor,
    ) -> Tensor:
        """Return the teacher's hidden states [M, H] under the hint that was chosen."""
        prompts = [self._drawn(turn.teacher_prompts) for turn in turns]
        several = max(map(len, prompts)) > 1
        whole: Tensor | None = None
        best = torch.full((len(batch.targets),), -1, device=likeliest.device)
        for number in range(max(map(len, prompts))):
            members = [index for index, own in enumerate(prompts) if len(own) > number]
            hinted = [replace(turns[index], prompt_ids=prompts[index][number]) for index in members]
            rows = pack(hinted, likeliest.device)
            hidden = teacher.hidden(rows)
            whole = hidden.new_zeros((len(best), hidden.shape[1])) if whole is None else whole
            where = torch.cat([_positions(turns, index) for index in members]).to(best.device)
            if not several:
                whole[where] = hidden
                continue
            own = self._likeliest(teacher, hidden, rows.temperature, likeliest.shape[1])
            fits = self._overlap(own, likeliest[where], hinted)
            better = fits > best[where]
            best[where[better]] = fits[better]
            whole[where[better]] = hidden[better]
        assert whole is not None
        return whole

    def _drawn(self, prompts: Sequence[list[int]]) -> Sequence[list[int]]:
        """Leave what has to be compared; the first prompt is that of the longest hint."""
        if len(prompts) < 2 or self._choice in ("overlap", "token_overlap"):
            return prompts
        return [prompts[0] if self._choice == "longest" else self._random.choice(prompts)]

    def _overlap(self, own: Tensor, likeliest: Tensor, turns: Sequence[SignalledTurn]) -> Tensor:
        """Return, for each position, how many likely tokens teacher and student share there.

        For a choice by whole turns, every position has its turn's sum.
        """
        shared = (own[:, :, None] == likeliest[:, None, :]).any(-1).sum(-1)
        if self._choice == "token_overlap":
            return shared
        counts = [int(turn.signal.mask.sum()) for turn in turns]
        return torch.cat([part.sum().expand(len(part)) for part in torch.split(shared, counts)])

    def _likeliest(
        self, model: TrainModel, hidden: Tensor, temperature: Tensor, count: int
    ) -> Tensor:
        return chunked_top(hidden, model.head, temperature, count, self._chunk)


@torch.no_grad()
def self_test(teacher: Teacher, model: TrainModel, tolerance: float) -> None:
    """Prove that with the same weights and an empty hint teacher and student say the same (rule 8).

    Raises:
        ConfigError: they differ at some token by more than ``tolerance``.
    """
    turns = [_probe(prompt, answer) for prompt, answer in _PROBES]
    batch = pack(turns, model.device)
    with model.evaluating():
        hidden = model.hidden(batch)
        ids, told = teacher.score(model, model, hidden, batch, turns)
        own, _ = chunked_logprobs(hidden, model.head, ids, batch.temperature)
    difference = float((told - own).abs().max())
    if not difference <= tolerance:
        raise ConfigError(
            f"model.path: teacher and student differ by {difference:.2g} with the same weights and "
            "no hint, so what hints teach could not be told from noise; choose a model of another "
            "family, or trainer.algorithm = 'binary'"
        )


def _probe(prompt: list[int], answer: list[int]) -> SignalledTurn:
    tokens = len(answer)
    return SignalledTurn(
        prompt_ids=prompt,
        answer_ids=answer,
        behaviour=[0.0] * tokens,
        temperature=1.0,
        signal=TokenSignal(np.zeros(tokens, np.float32), np.ones(tokens, np.bool_), 1.0),
        weight=1.0 / tokens,
        is_current=False,
        teacher_prompts=(prompt,),
    )


def _positions(turns: Sequence[SignalledTurn], index: int) -> Tensor:
    """Return where a turn's learning tokens stand among those of all packed turns."""
    counts = [int(turn.signal.mask.sum()) for turn in turns[: index + 1]]
    return torch.arange(sum(counts[:-1]), sum(counts))
