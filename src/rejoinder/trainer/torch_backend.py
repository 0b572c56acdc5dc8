"""The trainer backend on PyTorch: one device, full weights or an adapter."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from rejoinder.config import Config
from rejoinder.errors import ConfigError
from rejoinder.models.embedded import resolve_model
from rejoinder.models.loading import pick_device, pick_dtype
from rejoinder.models.logprobs import chunked_logprobs
from rejoinder.models.tokenizer import tokenizer_hash
from rejoinder.trainer import batching
from rejoinder.trainer.average import WeightAverage
from rejoinder.trainer.base import SignalledTurn, StepFigures
from rejoinder.trainer.batching import MicroBatch
from rejoinder.trainer.checkpoint_file import (
    AVERAGED,
    Parts,
    read_checkpoint,
    restore_random,
    write_checkpoint,
)
from rejoinder.trainer.distil import TeachingLoss
from rejoinder.trainer.engine_calls import EngineCaller
from rejoinder.trainer.engine_teacher import EngineTeacher
from rejoinder.trainer.loss_registry import DISTILLING, find_loss
from rejoinder.trainer.losses import Hinted, LossInputs
from rejoinder.trainer.model import TrainModel, load_adapter, load_frozen, load_full
from rejoinder.trainer.optimizer import Optimizer
from rejoinder.trainer.teacher import Teacher, self_test
from rejoinder.trainer.totals import StepTotals
from rejoinder.types import WeightsKind

_COMPARED_TOKENS = 512
"""Of served answers and their prompts, computed again in each step for comparison alone; where the
next one alone has more, it and no other."""
_FP32_DIFFERENCE, _BF16_DIFFERENCE = 1e-4, 0.1
"""How far teacher and student may differ at a token where nothing differs but the packing."""
_ENGINE_FP32, _ENGINE_BF16 = 1e-3, 0.5
"""The same where an engine computes one of them: with other kernels, and in bfloat16 with logits
that are rounded, near 20 by up to 0.06, at each of some hundred tokens."""


class TorchBackend:
    """Implements ``TrainerBackend``.

    One optimizer step is taken per batch, so the weights at the start of a step are those of
    its only pass: the anchor l_old is the pass's own value, detached, and costs nothing.
    """

    def __init__(
        self,
        config: Config,
        loss: str,
        *,
        needs_teacher: bool = False,
        engine: EngineCaller | None = None,
    ) -> None:
        """Choose device and loss; nothing is loaded yet.

        ``engine`` is the teacher's, with ``trainer.teacher.weights = "engine"``.

        Raises:
            ConfigError: the loss is unknown, or compares with no teacher where one is needed, or
                the device is not there.
        """
        self._config = config.trainer
        self._loss = find_loss(loss, self._config.algorithm)
        self._policy = config.model.policy
        self._teacher = self._find_teacher(engine)
        if needs_teacher and self._teacher is None:
            raise ConfigError(
                f"trainer.algorithm: {self._config.algorithm!r} learns from hints, and its loss "
                f"{loss!r} compares with no teacher; built-in ones that do are "
                f"{', '.join(sorted(DISTILLING))}, and one of your own is a TeachingLoss"
            )
        self._base = resolve_model(config.model.path)
        self._device = pick_device(config.model)
        self._dtype = pick_dtype(config.model, self._device)
        if self._config.threads is not None:
            torch.set_num_threads(self._config.threads)
        self._model: TrainModel | None = None
        self._optimizer: Optimizer | None = None
        self._reference: TrainModel | None = None
        self._teacher_average: WeightAverage | None = None
        """The teacher that follows the policy."""
        self._served: WeightAverage | None = None
        """What versions hold, where that is not the weights in training."""
        self._head_trains = True
        """Whether the newest version holds what trains, when no average is served."""
        self._next_compared = 0
        self._totals = StepTotals()

    @property
    def kind(self) -> WeightsKind:
        """See ``TrainerBackend.kind``."""
        return WeightsKind.FULL if self._config.lora is None else WeightsKind.LORA

    @property
    def is_full_precision(self) -> bool:
        """Whether it computes in fp32."""
        return self._dtype is torch.float32

    def load(
        self, weights: Path | None, checkpoint: Path | None, *, as_served: bool = False
    ) -> None:
        """See ``TrainerBackend.load``."""
        if isinstance(self._teacher, EngineTeacher):
            self._teacher.check(tokenizer_hash(self._base))  # may be away: load nothing in vain
        self._model = self._optimizer = self._teacher_average = self._served = (
            None  # free them before loading
        )
        model = self._load_model(weights)
        optimizer = Optimizer(model.parameters, self._config)
        average = self._begin_average(model)
        self._head_trains = True
        served = WeightAverage(model, self._config.average) if self._config.average else None
        torch.manual_seed(self._config.seed)
        if checkpoint is not None:
            parts = read_checkpoint(checkpoint)
            if served is not None and parts["served"]:
                served.load_state(parts["served"])
            is_averaged = AVERAGED in parts["flags"]
            if parts["master"] and not (as_served and is_averaged):
                model.load_master(parts["master"])
            self._head_trains = as_served or not is_averaged
            optimizer.load_state(parts["optimizer"])
            if average is not None:
                # A checkpoint that was written under another kind of teacher holds none.
                average.load_state(parts["average"] or model.master())
            restore_random(parts, self._device)
        if self._needs_start_weights() and self._config.lora is None:
            self._reference = self._reference or load_frozen(self._base, self._dtype, self._device)
        self._test_teacher(model, is_start=weights is None)
        self._model, self._optimizer = model, optimizer
        self._teacher_average, self._served = average, served
        self._totals = StepTotals()

    def _find_teacher(self, engine: EngineCaller | None) -> Teacher | EngineTeacher | None:
        if not isinstance(self._loss, TeachingLoss):
            return None
        compared = self._loss.candidates(self._config.loss)
        if self._config.teacher.weights != "engine":
            return Teacher(compared, self._config)
        if engine is None:
            raise ConfigError("trainer.teacher.weights = 'engine' needs an engine to ask")
        return EngineTeacher(compared, self._config, engine, self._policy)

    def _test_teacher(self, model: TrainModel, *, is_start: bool) -> None:
        """Prove what can be proved of the teacher before anything is learnt from it (rule 8)."""
        teacher = self._teacher
        if isinstance(teacher, Teacher):
            # Later the teacher's weights are others; the way of computing is still proved.
            taught_by = self._teaching(model) if is_start else contextlib.nullcontext(model)
            with self._autocast(), taught_by as weights:
                tolerance = _FP32_DIFFERENCE if self.is_full_precision else _BF16_DIFFERENCE
                self_test(partial(teacher.score, weights), model, tolerance)
        elif teacher is not None:
            has_start = self._reference is not None or self._config.lora is not None
            start = self._start_weights(model) if has_start else contextlib.nullcontext(model)
            with self._autocast(), start as weights:
                teacher.self_test(
                    weights,
                    is_start=is_start or has_start,
                    tolerance=_ENGINE_FP32 if self.is_full_precision else _ENGINE_BF16,
                )

    def accumulate(self, turns: Sequence[SignalledTurn]) -> Iterator[float]:
        """See ``TrainerBackend.accumulate``."""
        self.discard()
        lengths = [batching.row_length(turn) for turn in turns]
        groups = batching.plan(lengths, self._config.micro_batch_tokens)
        done = 0
        self._compare_served(turns)
        for group in groups:
            done += self._backward([turns[index] for index in group])
            yield done / sum(lengths)

    def apply(self, step: int) -> StepFigures:
        """See ``TrainerBackend.apply``."""
        optimizer = self._loaded()[1]
        metrics = self._totals.figures()
        skipped = None
        if math.isfinite(metrics.get("loss", 0.0)):
            update = optimizer.apply(step)
            metrics |= {"grad_norm": update.grad_norm, "learning_rate": update.learning_rate}
            skipped = None if update.applied else "non_finite_gradient"
            for average in (self._teacher_average, self._served):
                if update.applied and average is not None:
                    average.update()
            self._head_trains |= update.applied
        else:
            skipped = "non_finite_loss"
        self.discard()
        return StepFigures(metrics, skipped)

    def discard(self) -> None:
        """See ``TrainerBackend.discard``."""
        self._loaded()[1].zero_grad()
        self._totals = StepTotals()

    def save_weights(self, directory: Path) -> None:
        """See ``TrainerBackend.save_weights``."""
        model = self._loaded()[0] if self._served is None else self._served.model
        model.save(directory, self._dtype)

    def save_checkpoint(self, directory: Path) -> None:
        """See ``TrainerBackend.save_checkpoint``."""
        model, optimizer = self._loaded()
        parts: Parts = {"optimizer": optimizer.state()}
        if self._rounds_versions or self._served is not None:
            parts["master"] = model.master()
        if self._served is not None:
            parts["flags"] = {AVERAGED: torch.tensor(1)}
            if self._rounds_versions:
                parts["served"] = self._served.state()
        if self._teacher_average is not None:
            parts["average"] = self._teacher_average.state()
        write_checkpoint(directory, parts, self._device)

    @property
    def _rounds_versions(self) -> bool:
        """Whether versions hold less than the weights in training do."""
        return self.kind is WeightsKind.FULL and self._dtype is not torch.float32

    def _loaded(self) -> tuple[TrainModel, Optimizer]:
        if self._model is None or self._optimizer is None:
            raise RuntimeError("load() comes first")
        return self._model, self._optimizer

    def _begin_average(self, model: TrainModel) -> WeightAverage | None:
        """Return the teacher that follows the policy, where it is one; it begins at ``model``."""
        teacher = self._config.teacher
        if self._teacher is None or teacher.weights != "ema":
            return None
        return WeightAverage(model, teacher.decay)

    def _needs_start_weights(self) -> bool:
        taught = self._teacher is not None and self._config.teacher.weights == "frozen"
        return taught or bool(self._config.loss.kl_coefficient)

    def _load_model(self, weights: Path | None) -> TrainModel:
        checkpointing = self._config.gradient_checkpointing
        if self._config.lora is None:
            return load_full(weights or self._base, self._device, checkpointing=checkpointing)
        return load_adapter(
            self._base,
            weights,
            self._config.lora,
            self._dtype,
            self._device,
            checkpointing=checkpointing,
            seed=self._config.seed,
        )

    @torch.no_grad()
    def _compare_served(self, turns: Sequence[SignalledTurn]) -> None:
        """Hold what is served against what the engine said, where other weights train (rule 8).

        Some turns do, others each time: the training pass says it of all where it has the same
        weights.
        """
        current = [one for one in turns if one.is_current]
        if self._served is None or not current:
            return
        start = self._next_compared % len(current)
        ordered = [*current[start:], *current[:start]]
        ends = itertools.accumulate(map(batching.row_length, ordered))
        some = [one for one, end in zip(ordered, ends, strict=True) if end <= _COMPARED_TOKENS]
        some = some or ordered[:1]
        self._next_compared += len(some)
        batch = batching.pack(some, self._device)
        with self._autocast(), self._served.model.evaluating():
            served = self._served.model.logprobs(batch, self._config.logit_chunk)[0]
        self._totals.compare(served, batch)

    def _backward(self, turns: Sequence[SignalledTurn]) -> int:
        """Add to the gradient and to the figures; return the tokens read."""
        model = self._loaded()[0]
        batch = batching.pack(turns, self._device)
        reference = self._reference_logprobs(model, batch)
        with self._autocast():
            earlier = self._without_dropout(model, batch)
            hidden = model.hidden(batch)
            start = hidden.detach() if earlier is None else earlier
            ids, taught = self._taught(model, start, batch, turns)
            targets = batch.targets[:, None] if ids is None else _beside(batch.targets, ids)
            logprobs, entropy = self._logprobs(model, hidden, targets, batch)
            if earlier is None:
                anchor = logprobs.detach()
            else:
                with torch.no_grad():
                    anchor = self._logprobs(model, earlier, targets, batch)[0]
        inputs = LossInputs(
            logprobs=logprobs[:, 0],
            anchor=anchor[:, 0],
            behaviour=batch.behaviour,
            advantages=batch.advantages,
            weights=batch.weights,
            reference=reference,
            entropy=entropy,
            hinted=self._compared(batch, logprobs, anchor, taught),
        )
        loss, metrics = self._loss(inputs, self._config.loss)
        loss.backward()  # type: ignore[no-untyped-call]
        self._totals.add(metrics, batch)
        if self._served is None and self._head_trains:
            self._totals.compare(inputs.anchor, batch)
        return batch.tokens

    def _logprobs(
        self, model: TrainModel, hidden: Tensor, targets: Tensor, batch: MicroBatch
    ) -> tuple[Tensor, Tensor]:
        chunk = self._config.logit_chunk
        return chunked_logprobs(hidden, model.head, targets, batch.temperature, chunk)

    def _without_dropout(self, model: TrainModel, batch: MicroBatch) -> Tensor | None:
        """Return the hidden states that l_old comes from where it is not the training pass."""
        if self._config.lora is None or not self._config.lora.dropout:
            return None
        with torch.no_grad(), model.evaluating():
            return model.hidden(batch)

    def _taught(
        self,
        model: TrainModel,
        hidden: Tensor,
        batch: MicroBatch,
        turns: Sequence[SignalledTurn],
    ) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """Return tokens to compare [M, K] and what the teacher says of them, where one is asked."""
        if self._teacher is None or not any(turn.teacher_prompts for turn in turns):
            return None, None
        if isinstance(self._teacher, EngineTeacher):
            return self._teacher.score(model, hidden, batch, turns)
        with self._teaching(model) as teacher:
            return self._teacher.score(teacher, model, hidden, batch, turns)

    def _compared(
        self, batch: MicroBatch, logprobs: Tensor, anchor: Tensor, taught: Tensor | None
    ) -> Hinted | None:
        """Return the student's and the teacher's view of the same tokens.

        Where there is no hint the teacher has the student's values: a difference of zero.
        """
        if self._teacher is None:
            return None
        if taught is None:
            return Hinted(batch.hint_weights, logprobs, anchor, anchor)
        has_hint = (batch.hint_weights != 0)[:, None]
        own = anchor[:, 1:]
        return Hinted(batch.hint_weights, logprobs[:, 1:], own, torch.where(has_hint, taught, own))

    @contextlib.contextmanager
    def _teaching(self, model: TrainModel) -> Iterator[TrainModel]:
        if self._config.teacher.weights == "frozen":
            with self._start_weights(model) as frozen:
                yield frozen
        else:
            moving = model if self._teacher_average is None else self._teacher_average.model
            with moving.evaluating():
                yield moving

    @contextlib.contextmanager
    def _start_weights(self, model: TrainModel) -> Iterator[TrainModel]:
        """Give the frozen start weights: a model of their own, or the one under the adapter."""
        if self._reference is not None:
            yield self._reference
        else:
            with model.without_adapter():
                yield model

    @torch.no_grad()
    def _reference_logprobs(self, model: TrainModel, batch: MicroBatch) -> Tensor | None:
        if not self._config.loss.kl_coefficient:
            return None
        with self._autocast(), self._start_weights(model) as frozen:
            return frozen.logprobs(batch, self._config.logit_chunk)[0]

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self._device.type, self._dtype, enabled=self._dtype is not torch.float32
        )


def _beside(targets: Tensor, ids: Tensor) -> Tensor:
    """Return [M, 1 + K]: the sampled token, then those to compare."""
    return torch.cat((targets[:, None], ids), dim=1)
