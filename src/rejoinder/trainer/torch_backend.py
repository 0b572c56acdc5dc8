"""The trainer backend on PyTorch: one device, full weights or an adapter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rejoinder.config import Config
from rejoinder.errors import ConfigError
from rejoinder.models.embedded import resolve_model
from rejoinder.models.loading import pick_device, pick_dtype
from rejoinder.trainer import batching
from rejoinder.trainer.base import SignalledTurn, StepFigures
from rejoinder.trainer.batching import MicroBatch
from rejoinder.trainer.loss_registry import find_loss
from rejoinder.trainer.losses import LossInputs, LossMetrics
from rejoinder.trainer.model import TrainModel, load_adapter, load_frozen, load_full
from rejoinder.trainer.optimizer import Optimizer
from rejoinder.types import WeightsKind

_CHECKPOINT = "training.safetensors"


class TorchBackend:
    """Implements ``TrainerBackend``.

    One optimizer step is taken per batch, so the weights at the start of a step are those of
    its only pass: the anchor l_old is the pass's own value, detached, and costs nothing.
    """

    def __init__(self, config: Config, loss: str) -> None:
        """Choose device and loss; nothing is loaded yet.

        Raises:
            ConfigError: the loss is unknown, or the device is not there.
        """
        self._config = config.trainer
        self._loss = find_loss(loss, self._config.algorithm)
        self._base = resolve_model(config.model.path)
        self._device = pick_device(config.model)
        self._dtype = pick_dtype(config.model, self._device)
        if self._config.threads is not None:
            torch.set_num_threads(self._config.threads)
        self._model: TrainModel | None = None
        self._optimizer: Optimizer | None = None
        self._reference: TrainModel | None = None
        self._totals = _Totals()

    @property
    def kind(self) -> WeightsKind:
        """See ``TrainerBackend.kind``."""
        return WeightsKind.FULL if self._config.lora is None else WeightsKind.LORA

    @property
    def is_full_precision(self) -> bool:
        """Whether it computes in fp32."""
        return self._dtype is torch.float32

    def load(self, weights: Path | None, checkpoint: Path | None) -> None:
        """See ``TrainerBackend.load``."""
        self._model = self._optimizer = None  # free them before loading
        model = self._load_model(weights)
        optimizer = Optimizer(model.parameters, self._config)
        torch.manual_seed(self._config.seed)
        if checkpoint is not None:
            _load_checkpoint(checkpoint / _CHECKPOINT, model, optimizer, self._device)
        if self._config.loss.kl_coefficient and self._config.lora is None:
            self._reference = self._reference or load_frozen(self._base, self._dtype, self._device)
        self._model, self._optimizer = model, optimizer
        self._totals = _Totals()

    def accumulate(self, turns: Sequence[SignalledTurn]) -> Iterator[float]:
        """See ``TrainerBackend.accumulate``."""
        self.discard()
        lengths = [batching.row_length(turn) for turn in turns]
        groups = batching.plan(lengths, self._config.micro_batch_tokens)
        done = 0
        for group in groups:
            batch = batching.pack([turns[index] for index in group], self._device)
            self._totals.add(*self._backward(batch))
            done += batch.tokens
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
        else:
            skipped = "non_finite_loss"
        self.discard()
        return StepFigures(metrics, skipped)

    def discard(self) -> None:
        """See ``TrainerBackend.discard``."""
        self._loaded()[1].zero_grad()
        self._totals = _Totals()

    def save_weights(self, directory: Path) -> None:
        """See ``TrainerBackend.save_weights``."""
        self._loaded()[0].save(directory, self._dtype)

    def save_checkpoint(self, directory: Path) -> None:
        """See ``TrainerBackend.save_checkpoint``."""
        model, optimizer = self._loaded()
        tensors = {f"optimizer/{key}": value for key, value in optimizer.state().items()}
        if self.kind is WeightsKind.FULL and self._dtype is not torch.float32:
            tensors |= {f"master/{name}": value for name, value in model.master().items()}
        tensors["random/cpu"] = torch.get_rng_state()
        if self._device.type == "cuda":
            tensors["random/cuda"] = torch.cuda.get_rng_state(self._device)
        save_file(tensors, directory / _CHECKPOINT)

    def _loaded(self) -> tuple[TrainModel, Optimizer]:
        if self._model is None or self._optimizer is None:
            raise RuntimeError("load() comes first")
        return self._model, self._optimizer

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

    def _backward(self, batch: MicroBatch) -> tuple[LossMetrics, MicroBatch, Tensor]:
        model = self._loaded()[0]
        reference = self._reference_logprobs(model, batch)
        with self._autocast():
            anchor = self._anchor(model, batch)
            logprobs, entropy = model.logprobs(batch, self._config.logit_chunk)
        inputs = LossInputs(
            logprobs=logprobs,
            anchor=logprobs.detach() if anchor is None else anchor,
            behaviour=batch.behaviour,
            advantages=batch.advantages,
            weights=batch.weights,
            reference=reference,
            entropy=entropy,
        )
        loss, metrics = self._loss(inputs, self._config.loss)
        loss.backward()  # type: ignore[no-untyped-call]
        return metrics, batch, inputs.anchor

    def _anchor(self, model: TrainModel, batch: MicroBatch) -> Tensor | None:
        """Return l_old where the training pass is not it: adapters with dropout."""
        if self._config.lora is None or not self._config.lora.dropout:
            return None
        with torch.no_grad(), model.evaluating():
            return model.logprobs(batch, self._config.logit_chunk)[0]

    @torch.no_grad()
    def _reference_logprobs(self, model: TrainModel, batch: MicroBatch) -> Tensor | None:
        if not self._config.loss.kl_coefficient:
            return None
        with self._autocast():
            if self._reference is not None:
                return self._reference.logprobs(batch, self._config.logit_chunk)[0]
            with model.without_adapter():
                return model.logprobs(batch, self._config.logit_chunk)[0]

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self._device.type, self._dtype, enabled=self._dtype is not torch.float32
        )


def _load_checkpoint(
    file: Path, model: TrainModel, optimizer: Optimizer, device: torch.device
) -> None:
    try:
        tensors = load_file(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the checkpoint {file}: {error}") from error
    parts: dict[str, dict[str, Tensor]] = {"optimizer": {}, "master": {}, "random": {}}
    for key, value in tensors.items():
        part, _, name = key.partition("/")
        parts[part][name] = value
    if parts["master"]:
        model.load_master(parts["master"])
    optimizer.load_state(parts["optimizer"])
    torch.set_rng_state(parts["random"]["cpu"])
    if device.type == "cuda" and "cuda" in parts["random"]:
        torch.cuda.set_rng_state(parts["random"]["cuda"], device)


@dataclass(slots=True)
class _Totals:
    """Figures of the micro-batches of one step."""

    means: dict[str, float] = field(default_factory=dict)
    maxima: dict[str, float] = field(default_factory=dict)
    tokens: int = 0
    packed_tokens: int = 0
    micro_batches: int = 0
    differences: float = 0.0
    """Sum of |l_old - l_mu| over tokens that the current version sampled (rule 8)."""
    largest_difference: float = 0.0
    compared: int = 0

    def add(self, metrics: LossMetrics, batch: MicroBatch, anchor: Tensor) -> None:
        """Take in one micro-batch."""
        for name, value in metrics.means.items():
            self.means[name] = self.means.get(name, 0.0) + float(value)
        for name, value in metrics.maxima.items():
            self.maxima[name] = max(self.maxima.get(name, -math.inf), float(value))
        self.tokens += len(batch.targets)
        self.packed_tokens += batch.tokens
        self.micro_batches += 1
        differences = (anchor - batch.behaviour).abs()[batch.is_current]
        if differences.numel():
            self.differences += float(differences.sum())
            self.largest_difference = max(self.largest_difference, float(differences.max()))
            self.compared += differences.numel()

    def figures(self) -> dict[str, float]:
        """Return the step's figures."""
        figures = {**self.means, **self.maxima}
        figures["tokens"] = self.tokens
        figures["packed_tokens"] = self.packed_tokens
        figures["micro_batches"] = self.micro_batches
        figures["logprob_difference_tokens"] = self.compared
        if self.compared:
            figures["logprob_difference_mean"] = self.differences / self.compared
            figures["logprob_difference_max"] = self.largest_difference
        return figures
