"""Training steps of several seats at once: the trainer's own losses, signals and rule of Adam.

What the trainer does for one policy (``trainer/torch_backend.py``, ``optimizer.py``), with weights
stacked. Seats share nothing but matrix products: the gradient of one has no part of another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from rejoinder.config import TrainerConfig
from rejoinder.errors import ConfigError
from rejoinder.evaluation.pack.average import PackedAverage
from rejoinder.evaluation.pack.kept import KeptVersions
from rejoinder.evaluation.pack.rows import Rows, gather, likeliest, logprobs_of, pack_rows
from rejoinder.evaluation.pack.stacked import StackedModel, copy_seat, padded_groups
from rejoinder.evaluation.pack.teaching import PackedTeachers
from rejoinder.models.logprobs import chunked_logprobs
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.batching import row_length
from rejoinder.trainer.distil import Candidates, TeachingLoss
from rejoinder.trainer.loss_registry import find_loss
from rejoinder.trainer.losses import Hinted, Loss, LossInputs
from rejoinder.trainer.optimizer import EPS, learning_rate
from rejoinder.types import BASE_VERSION

_T = TypeVar("_T")
_MOST_IDS = 65_536
"""Padded ids of all seats in one forward and backward pass; few passes, for a launch costs more
than the product it starts. 10 GB with a model of 135 M parameters."""


@dataclass(frozen=True, slots=True)
class SeatTraining:
    """How one seat learns."""

    config: TrainerConfig
    loss: str
    """Name of the algorithm's loss."""

    def __post_init__(self) -> None:
        config = self.config
        if config.lora is not None:
            raise ConfigError(
                "packed runs train full weights: remove trainer.lora, or make the runs one by one"
            )
        if config.teacher.weights == "engine":
            raise ConfigError(
                "packed runs ask no engine: set trainer.teacher.weights to 'frozen', 'current' or "
                "'ema', or make the runs one by one"
            )
        if config.loss.entropy_coefficient:
            raise ConfigError("packed runs know no trainer.loss.entropy_coefficient: set it to 0")

    @property
    def compared(self) -> Candidates:
        """Which tokens the loss compares with a teacher: none of the student's, if with no one."""
        loss = find_loss(self.loss, self.config.algorithm)
        if not isinstance(loss, TeachingLoss):
            return Candidates("student", 0)
        return loss.candidates(self.config.loss)

    @property
    def teacher_keeps(self) -> float | None:
        """Share of a teacher's weights that a step keeps; None: it has none, or a frozen one."""
        teacher = self.config.teacher
        if not self.compared.count or teacher.weights == "frozen":
            return None
        return teacher.decay if teacher.weights == "ema" else 0.0


class PackedTrainer:
    """Weights in training and their optimizer, for all seats."""

    def __init__(
        self, model: StackedModel, start: StackedModel, runs: Sequence[SeatTraining]
    ) -> None:
        """Let the first runs take their seats.

        Args:
            model: the weights in training.
            start: the start weights in one seat: reference and teacher of all.
            runs: all that will sit here; those that come later do so by ``begin``.
        """
        self._model, self._start, self._runs = model, start, runs
        self._seats: list[SeatTraining] = list(runs[: model.seats])
        self._losses: dict[int, Loss] = {}
        self._top = max(one.compared.count for one in runs)
        has_own = any(one.teacher_keeps for one in runs)
        self._teachers = PackedTeachers(model, start, self._top, differs=has_own)
        self._has_reference = any(one.config.loss.kl_coefficient for one in runs)
        self._budget = _MOST_IDS // model.seats
        for weight in model.weights.values():
            weight.requires_grad_()
        self._served = PackedAverage(model, differs=any(one.config.average for one in runs))
        self._adam = _Adam(model.weights, model.seats)
        self._kept = KeptVersions()
        for seat in range(model.seats):
            self.begin(seat, seat)

    def begin(self, seat: int, run: int) -> None:
        """Let a run take a seat: from the start weights, with nothing learnt.

        Args:
            seat: which; whoever sat there has gone.
            run: its place among all runs.
        """
        training = self._runs[run]
        self._seats[seat] = training
        self._losses[seat] = find_loss(training.loss, training.config.algorithm)
        self._kept.begin(seat)
        self.go_back(seat, BASE_VERSION)

    def keep(self, seat: int, version: int, held: Collection[int]) -> None:
        """Keep what a seat serves as a version, if it is ``held``, and nothing else than these."""
        self._kept.keep(seat, version, self.served, self._adam.steps(seat), held)

    @torch.no_grad()
    def go_back(self, seat: int, version: int) -> None:
        """Go on from a version that was kept, or from the start, as after a rollback to it."""
        training, kept = self._seats[seat], self._kept.of(seat, version)
        if kept is None:
            copy_seat(self._start, 0, self._model, seat)
        else:
            for name, weight in kept.weights.items():
                self._model.weights[name][seat] = weight
        self._adam.begin(seat, training.config, 0 if kept is None else kept.steps)
        self._teachers.begin(seat, training.compared, training.teacher_keeps)
        self._served.begin(seat, training.config.average)

    @property
    def served(self) -> StackedModel:
        """The weights that answer."""
        return self._served.model

    def step(self, turns: Mapping[int, Sequence[SignalledTurn]]) -> list[int]:
        """Take a step at each of the given seats; one without turns changes no weights.

        Returns:
            the seats whose loss or gradient was not finite, and whose weights are as they were.
        """
        losses = torch.zeros(self._model.seats, device=self._model.device)
        for batch in self._batches(turns):
            losses += self._backward(pack_rows(batch, self._model.device))
        finite = losses.isfinite().tolist()
        taught = [seat for seat, own in turns.items() if own]
        changing = [seat for seat in taught if finite[seat]]
        broken = self._adam.apply(list(turns), changing)
        changed = [seat for seat in changing if seat not in broken]
        self._teachers.follow(changed)
        self._served.follow(changed)
        return sorted({*broken, *(seat for seat in taught if not finite[seat])})

    def _batches(
        self, turns: Mapping[int, Sequence[SignalledTurn]]
    ) -> Iterator[list[list[SignalledTurn]]]:
        """Yield some turns of each seat at a time, the longest first.

        Rows of all seats are padded to the longest of any, so it is that one that the budget of a
        seat is for: else one long turn among many short ones of others would not fit the memory.
        """
        ordered = [
            sorted(turns.get(seat, ()), key=row_length, reverse=True)
            for seat in range(self._model.seats)
        ]
        ranks = itertools.zip_longest(*ordered)
        lengths = [max(row_length(turn) for turn in rank if turn) for rank in ranks]
        for group in padded_groups(lengths, self._budget):
            yield [own[group[0] : group[-1] + 1] for own in ordered]

    def _backward(self, batch: Rows) -> Tensor:
        """Add to the gradient; return the loss [S] of each seat."""
        model = self._model
        hidden = gather(model.hidden(batch.ids, batch.mask, saves_memory=True), batch.places)
        ids, taught = batch.targets[..., None], dict[int, Tensor]()
        if self._top:
            compared = self._to_compare(hidden.detach(), batch.targets)
            taught = self._teachers.score(batch, compared)
            ids = torch.cat((ids, compared), -1)
        logprobs = logprobs_of(hidden, model.head, ids, batch.temperature)
        reference = self._reference(batch) if self._has_reference else None
        losses = [logprobs.new_zeros(()) for _ in batch.turns]
        for seat, own in enumerate(batch.turns):
            if own:
                inputs = self._inputs(seat, own, logprobs[seat], reference, taught.get(seat))
                losses[seat] = self._losses[seat](inputs, self._seats[seat].config.loss)[0]
        found = torch.stack(losses)
        found.sum().backward()  # type: ignore[no-untyped-call]
        return found.detach()

    def _to_compare(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return ids [S, M, K] to compare with a teacher's; see ``PackedTeachers.score``."""
        compared = likeliest(hidden, self._model.head, self._top)
        for number, seat in enumerate(self._seats):
            if seat.compared.whose == "sampled":
                compared[number, :, 0] = targets[number]
        return compared

    def _inputs(
        self,
        seat: int,
        turns: list[SignalledTurn],
        logprobs: Tensor,
        reference: Tensor | None,
        taught: Tensor | None,
    ) -> LossInputs:
        """Return what the loss of one seat takes: [M', 1 + K] of ``logprobs`` [M, 1 + K]."""
        device = logprobs.device
        masks = [torch.from_numpy(turn.signal.mask) for turn in turns]
        counts = torch.tensor([int(mask.sum()) for mask in masks])
        own = logprobs[: int(counts.sum())]

        def spread(values: list[float]) -> Tensor:
            return torch.tensor(values).repeat_interleave(counts).to(device)

        def joined(parts: list[Tensor]) -> Tensor:
            learns = [part[mask] for part, mask in zip(parts, masks, strict=True)]
            return torch.cat(learns).float().to(device)

        hinted = None
        if count := self._seats[seat].compared.count:
            student = own[:, 1 : 1 + count]
            anchor = student.detach()
            weights = spread([turn.signal.hint_weight for turn in turns])
            teacher = anchor if taught is None else taught[: len(own), :count]
            teacher = torch.where((weights != 0)[:, None], teacher, anchor)
            hinted = Hinted(weights, student, anchor, teacher)
        return LossInputs(
            logprobs=own[:, 0],
            anchor=own[:, 0].detach(),
            behaviour=joined([torch.tensor(turn.behaviour) for turn in turns]),
            advantages=joined([torch.from_numpy(turn.signal.advantages) for turn in turns]),
            weights=spread([turn.weight for turn in turns]),
            reference=None if reference is None else reference[seat, : len(own)],
            hinted=hinted,
        )

    @torch.no_grad()
    def _reference(self, batch: Rows) -> Tensor:
        """Return log-probabilities [S, M] of the targets under the start weights."""
        hidden = self._start.hidden(batch.ids.flatten(0, 1)[None], batch.mask.flatten(0, 1)[None])
        own = gather(hidden[0].view(*batch.ids.shape, -1), batch.places).flatten(0, 1)
        logprobs, _ = chunked_logprobs(
            own, self._start.head[0], batch.targets.flatten(), batch.temperature.flatten()
        )
        return logprobs.view(batch.targets.shape)


class _Adam:
    """AdamW (Loshchilov and Hutter 2019) with a step number, rate and clip for each seat."""

    def __init__(self, weights: Mapping[str, Tensor], seats: int) -> None:
        self._weights = weights
        self._seats: dict[int, TrainerConfig] = {}
        self._steps = [0] * seats
        """Steps taken of each seat: the learning rate follows from it."""
        self._updates = [0] * seats
        """Those that changed weights: the moments' bias follows from it."""
        self._first = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self._second = {name: torch.zeros_like(weight) for name, weight in weights.items()}

    def begin(self, seat: int, config: TrainerConfig, steps: int = 0) -> None:
        """Begin at a seat without moments, as after so many steps."""
        self._seats[seat] = config
        self._steps[seat], self._updates[seat] = steps, 0
        for moments in (*self._first.values(), *self._second.values()):
            moments[seat] = 0.0

    def steps(self, seat: int) -> int:
        """Return how many steps a seat has taken."""
        return self._steps[seat]

    @torch.no_grad()
    def apply(self, stepping: Sequence[int], changing: Sequence[int]) -> list[int]:
        """Count a step of some seats, and change the weights of some of these.

        Returns:
            those of the latter whose gradient is not finite, and which stay.
        """
        for seat in stepping:
            self._steps[seat] += 1
        grads = {n: weight.grad for n, weight in self._weights.items() if weight.grad is not None}
        if not grads:
            return []
        squares = [grad.flatten(1).square().sum(1) for grad in grads.values()]
        norms = torch.stack(squares).sum(0).sqrt().tolist()
        rules = [_STAY] * len(self._steps)
        for seat in changing:
            if math.isfinite(norms[seat]):
                self._updates[seat] += 1
                rate = learning_rate(self._seats[seat], self._steps[seat])
                rules[seat] = _rule(self._seats[seat], self._updates[seat], rate, norms[seat])
        staying = [seat for seat, rule in enumerate(rules) if rule is _STAY]
        device = next(iter(grads.values())).device
        table = _Rule(*torch.tensor(rules, device=device).unbind(1))
        stays = torch.tensor(staying, dtype=torch.long, device=device)
        for name, grad in grads.items():
            grad.index_fill_(0, stays, 0.0)  # whatever it is: nothing times infinity is no nothing
            self._apply(name, grad, table)
            self._weights[name].grad = None
        return [seat for seat in changing if seat in staying]

    def _apply(self, name: str, grad: Tensor, rules: _Rule[Tensor]) -> None:
        weight, first, second = self._weights[name], self._first[name], self._second[name]

        def each(values: Tensor) -> Tensor:
            return values.view(-1, *[1] * (weight.dim() - 1))

        grad.mul_(each(rules.clip))
        first.mul_(each(rules.fast)).addcmul_(grad, each(rules.fast_rest))
        second.mul_(each(rules.slow)).addcmul_(grad.square_(), each(rules.slow_rest))
        if weight.dim() > 2:  # a stack of matrices; norms have no decay
            weight.mul_(each(rules.kept))
        scale = (second / each(rules.second_bias)).sqrt_().add_(EPS)
        weight.sub_(scale.reciprocal_().mul_(first).mul_(each(rules.rate)))


class _Rule(NamedTuple, Generic[_T]):
    """What one step does: numbers of one seat, or tensors [S] of all."""

    clip: _T
    """Factor of the gradient."""
    fast: _T
    fast_rest: _T
    """1 less the one before, as below: in fp32 the difference would be rounded."""
    slow: _T
    slow_rest: _T
    kept: _T
    """Of the weights, after their decay."""
    second_bias: _T
    rate: _T
    """Learning rate over the bias of the first moment."""


def _rule(config: TrainerConfig, update: int, rate: float, norm: float) -> _Rule[float]:
    fast, slow = config.betas
    return _Rule(
        clip=min(1.0, config.grad_clip / (norm + 1e-6)),  # as torch's clip_grad_norm_
        fast=fast,
        fast_rest=1 - fast,
        slow=slow,
        slow_rest=1 - slow,
        kept=1 - rate * config.weight_decay,
        second_bias=1 - slow**update,
        rate=rate / (1 - fast**update),
    )


_STAY = _Rule(
    clip=0.0,
    fast=1.0,
    fast_rest=0.0,
    slow=1.0,
    slow_rest=0.0,
    kept=1.0,
    second_bias=1.0,
    rate=0.0,
)
