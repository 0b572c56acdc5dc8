"""The teacher: the same answers, scored by weights that have the hint in their prompt.

It computes what the student computes, with the same code (rule 8): with the same weights and a hint
that changes nothing, both say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from rejoinder.algorithms.base import TokenSignal
from rejoinder.config import TrainerConfig
from rejoinder.errors import ConfigError
from rejoinder.models.logprobs import chunked_logprobs, chunked_top
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.batching import MicroBatch, pack, plan, row_length
from rejoinder.trainer.distil import Candidates
from rejoinder.trainer.hint_choice import HintChoice
from rejoinder.trainer.model import TrainModel

_PROBES = (([1, 5, 9], [2, 7, 3]), ([4, 8], [6, 1, 2, 5]))
"""Ids of two short turns; every vocabulary has them."""


class Teacher:
    """Scores the hinted turns of one micro-batch after the other."""

    def __init__(self, candidates: Candidates, config: TrainerConfig) -> None:
        self._candidates = candidates
        self._choice = HintChoice(candidates, config)
        self._chunk = config.logit_chunk
        self._most_tokens = config.micro_batch_tokens

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
        prompts = [self._choice.drawn(turn) for turn in turns]
        whose, count = self._candidates.whose, self._candidates.count
        likeliest = None
        if whose == "student" or max(map(len, prompts)) > 1:
            compared = self._choice.compared
            likeliest = self._likeliest(student, student_hidden, batch.temperature, compared)
        hidden = self._hidden(teacher, batch, turns, prompts, likeliest)
        if whose == "teacher":
            ids = self._likeliest(teacher, hidden, batch.temperature, count)
        elif whose == "student":
            assert likeliest is not None
            ids = likeliest
        else:
            ids = batch.targets[:, None]
        logprobs, _ = chunked_logprobs(hidden, teacher.head, ids, batch.temperature, self._chunk)
        return ids, logprobs

    def _hidden(
        self,
        teacher: TrainModel,
        batch: MicroBatch,
        turns: Sequence[SignalledTurn],
        prompts: Sequence[Sequence[list[int]]],
        likeliest: Tensor | None,
    ) -> Tensor:
        """Return the teacher's hidden states [M, H] under the hint that was chosen.

        The first hints of all turns are read together, then the second ones; where there are
        several, that of the largest overlap with the student's ``likeliest`` stays.
        """
        whole: Tensor | None = None
        best = torch.full((len(batch.targets),), -1, device=batch.targets.device)
        for number in range(max(map(len, prompts))):
            hinted = {
                index: replace(turns[index], prompt_ids=own[number])
                for index, own in enumerate(prompts)
                if len(own) > number
            }
            for members in self._passes(hinted):
                rows = [hinted[index] for index in members]
                packed = pack(rows, best.device)
                hidden = teacher.hidden(packed)
                if whole is None:
                    whole = hidden.new_zeros((len(best), hidden.shape[1]))
                where = torch.cat([_positions(turns, index) for index in members]).to(best.device)
                if likeliest is None or max(map(len, prompts)) == 1:
                    whole[where] = hidden
                    continue
                own = self._likeliest(teacher, hidden, packed.temperature, likeliest.shape[1])
                counts = [int(turn.signal.mask.sum()) for turn in rows]
                fits = self._choice.fits(own, likeliest[where], counts)
                better = fits > best[where]
                best[where[better]] = fits[better]
                whole[where[better]] = hidden[better]
        assert whole is not None
        return whole

    def _passes(self, hinted: dict[int, SignalledTurn]) -> list[list[int]]:
        """Group turns, which hints make longer, into passes of the student's size."""
        indices = list(hinted)
        groups = plan([row_length(hinted[index]) for index in indices], self._most_tokens)
        return [[indices[place] for place in group] for group in groups]

    def _likeliest(
        self, model: TrainModel, hidden: Tensor, temperature: Tensor, count: int
    ) -> Tensor:
        return chunked_top(hidden, model.head, temperature, count, self._chunk)


Score: TypeAlias = Callable[
    [TrainModel, Tensor, MicroBatch, Sequence[SignalledTurn]], tuple[Tensor, Tensor]
]
"""``Teacher.score`` of some weights."""


@torch.no_grad()
def largest_difference(score: Score, model: TrainModel) -> float:
    """Return the largest |l_T - l| where teacher and student should say the same (rule 8).

    Args:
        score: of a teacher with the weights of ``model``.
        model: the student.
    """
    turns = [_probe(prompt, answer) for prompt, answer in _PROBES]
    batch = pack(turns, model.device)
    with model.evaluating():
        hidden = model.hidden(batch)
        ids, told = score(model, hidden, batch, turns)
        own, _ = chunked_logprobs(hidden, model.head, ids, batch.temperature)
    return float((told - own).abs().max())


def self_test(score: Score, model: TrainModel, tolerance: float) -> None:
    """Prove that with the same weights and an empty hint teacher and student say the same (rule 8).

    Raises:
        ConfigError: they differ at some token by more than ``tolerance``.
    """
    refuse_difference(largest_difference(score, model), tolerance)


def refuse_difference(difference: float, tolerance: float) -> None:
    """Raise where teacher and student differ by more than ``tolerance``, or by no number.

    Raises:
        ConfigError: as said.
    """
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
