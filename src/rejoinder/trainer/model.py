"""The weights in training: a whole model, or an adapter on a frozen one.

Number formats. Weights that train are fp32. With ``model.dtype`` bfloat16 (the default on CUDA)
matrix products run in bfloat16 under autocast and versions are written in bfloat16, as engines
serve them; the fp32 weights go into checkpoints. A frozen model under an adapter is held in
``model.dtype``; one beside weights that train, in the formats that these are computed in.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from rejoinder.config import LoraConfig
from rejoinder.errors import ConfigError
from rejoinder.models.loading import load_model, model_kind
from rejoinder.models.logprobs import chunked_logprobs
from rejoinder.models.packed_attention import Segments, packed_hidden, use_packed_attention
from rejoinder.trainer.batching import MicroBatch
from rejoinder.types import WeightsKind

_ADAPTER = "adapter_model.safetensors"
_ADAPTER_SETTINGS = "adapter_config.json"
_LOW_RANK = re.compile(r"\.lora_[AB]\.\w+\.weight$")
"""Names of the tensors that engines read from an adapter."""


class TrainModel:
    """One policy's weights, with gradients."""

    def __init__(self, model: PreTrainedModel, adapter: peft.PeftModel | None) -> None:
        self._model = model
        self._adapter = adapter
        self.parameters: dict[str, nn.Parameter] = {
            name: parameter
            for name, parameter in (adapter or model).named_parameters()
            if parameter.requires_grad
        }

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        device: torch.device = self._model.device
        return device

    @property
    def head(self) -> Tensor:
        """[V, H] the output head's weight."""
        head: nn.Linear = self._model.get_output_embeddings()
        return head.weight

    def hidden(self, batch: MicroBatch) -> Tensor:
        """Return the last hidden states [M, H] at the positions that predict the targets."""
        return packed_hidden(self._model.base_model, batch.ids, batch.segments)[batch.predict]

    def logprobs(self, batch: MicroBatch, chunk: int) -> tuple[Tensor, Tensor]:
        """Return log-probabilities [M] of the targets and entropies [M], fp32."""
        hidden = self.hidden(batch)
        return chunked_logprobs(hidden, self.head, batch.targets, batch.temperature, chunk)

    @contextlib.contextmanager
    def without_adapter(self) -> Iterator[None]:
        """Compute with the frozen model alone: the reference of an adapter."""
        assert self._adapter is not None
        with self._adapter.disable_adapter():
            yield

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Compute without the adapter's dropout."""
        module = self._adapter or self._model
        module.eval()
        try:
            yield
        finally:
            module.train()

    def twin(self) -> TrainModel:
        """Return a model that computes alike, with trained weights of its own.

        Frozen weights, those under an adapter, are shared.
        """
        frozen = [weight for weight in self._model.parameters() if not weight.requires_grad]
        return copy.deepcopy(self, {id(weight): weight for weight in frozen})

    def save(self, directory: Path, dtype: torch.dtype) -> None:
        """Write a Hugging Face directory in ``dtype``, or an adapter in fp32."""
        if self._adapter is not None:
            tensors = peft.get_peft_model_state_dict(self._adapter, save_embedding_layers=False)
            save_file(_contiguous(tensors), directory / _ADAPTER, metadata={"format": "pt"})
            self._adapter.active_peft_config.save_pretrained(directory)
            return
        state = {name: weight.to(dtype) for name, weight in self._model.state_dict().items()}
        self._model.save_pretrained(directory, state_dict=state)

    def master(self) -> dict[str, Tensor]:
        """Return the trained weights as they are."""
        return {name: parameter.detach() for name, parameter in self.parameters.items()}

    @torch.no_grad()
    def load_master(self, weights: dict[str, Tensor]) -> None:
        """Take over what ``master`` returned.

        Raises:
            ConfigError: they are of another model.
        """
        if weights.keys() != self.parameters.keys():
            raise ConfigError("the checkpoint holds other weights than the model has")
        for name, parameter in self.parameters.items():
            parameter.copy_(weights[name])


def load_full(path: Path, device: torch.device, *, checkpointing: bool) -> TrainModel:
    """Load a model directory for training all of it.

    Raises:
        ConfigError: it holds an adapter, or a model that cannot be packed or trained.
    """
    if model_kind(path) is not WeightsKind.FULL:
        raise ConfigError(
            f"{path} is an adapter, and trainer.lora is not set: add a [trainer.lora] section, or "
            "go back to full weights with `rejoinder policy rollback 0`"
        )
    model = _prepared(path, torch.float32, device, checkpointing=checkpointing)
    return TrainModel(model, None)


def load_frozen(path: Path, dtype: torch.dtype, device: torch.device) -> TrainModel:
    """Load a model directory as a reference that never trains; it computes under autocast.

    ``dtype`` is how its matrices are held, but for embeddings and head: autocast rounds those alike
    in weights that train. So it computes, to the last digit, what the same weights compute there.
    """
    model = _prepared(path, torch.float32, device, checkpointing=False)
    model.requires_grad_(False)
    head = model.get_output_embeddings()
    whole = [one for one in model.modules() if isinstance(one, nn.Embedding)]
    kept = {id(one.weight) for one in (head, *whole)}
    for parameter in model.parameters():
        if parameter.ndim > 1 and id(parameter) not in kept:
            parameter.data = parameter.data.to(dtype)
    return TrainModel(model, None)


def load_adapter(
    base: Path,
    adapter: Path | None,
    config: LoraConfig,
    dtype: torch.dtype,
    device: torch.device,
    *,
    checkpointing: bool,
    seed: int = 0,
) -> TrainModel:
    """Load a frozen model in ``dtype`` with an adapter in fp32, or a new one that changes nothing.

    Raises:
        ConfigError: the adapter does not fit the configuration, or the model has no such modules.
    """
    model = _prepared(base, dtype, device, checkpointing=checkpointing)
    torch.manual_seed(seed)
    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=list(config.targets),
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        wrapped = peft.get_peft_model(model, settings, autocast_adapter_dtype=True)
    except ValueError as error:
        raise ConfigError(f"trainer.lora.targets: {error}") from error
    if not isinstance(model.get_output_embeddings(), nn.Linear):
        raise ConfigError("trainer.lora.targets: the output head cannot have an adapter")
    if adapter is not None:
        _load_adapter_weights(wrapped, adapter)
    wrapped.train()
    made = TrainModel(model, wrapped)
    _check_servable(made)
    return made


def _check_servable(made: TrainModel) -> None:
    """Refuse at start what trains and no engine could take up."""
    odd = [name for name in made.parameters if not _LOW_RANK.search(name)]
    if odd:
        raise ConfigError(
            f"trainer.lora.targets: {odd[0]} is no adapter of a linear layer, and engines serve "
            "only those: name linear layers, such as q_proj"
        )


def _load_adapter_weights(wrapped: peft.PeftModel, path: Path) -> None:
    if model_kind(path) is not WeightsKind.LORA:
        raise ConfigError(
            f"{path} holds full weights, and trainer.lora is set: remove the [trainer.lora] "
            "section, or go back to the start weights with `rejoinder policy rollback 0`"
        )
    _check_same_settings(wrapped.active_peft_config, path)
    tensors = load_file(path / _ADAPTER)
    own = peft.get_peft_model_state_dict(wrapped, save_embedding_layers=False)
    shapes = {name: tensor.shape for name, tensor in own.items()}
    if shapes != {name: tensor.shape for name, tensor in tensors.items()}:
        raise ConfigError(
            f"{path} holds an adapter of other tensors than model.path has under "
            "trainer.lora.targets: set both back to what the policy was trained with, or go back "
            "with `rejoinder policy rollback 0`"
        )
    peft.set_peft_model_state_dict(wrapped, tensors)


def _check_same_settings(own: Any, path: Path) -> None:
    """Refuse other settings than the version has; another alpha would scale it all at once."""
    saved = json.loads((path / _ADAPTER_SETTINGS).read_text("utf-8"))
    for key, here, there in (
        ("rank", own.r, saved["r"]),
        ("alpha", own.lora_alpha, saved["lora_alpha"]),
        ("targets", sorted(own.target_modules), sorted(saved["target_modules"])),
    ):
        if here != there:
            raise ConfigError(
                f"trainer.lora.{key} is {here}, and {path} was trained with {there}: set it back, "
                "or go back to the start weights with `rejoinder policy rollback 0`"
            )


def _prepared(
    path: Path, dtype: torch.dtype, device: torch.device, *, checkpointing: bool
) -> PreTrainedModel:
    """Load a model, make it pack, and prove on a few tokens that this changes nothing."""
    model = load_model(path, dtype, device)
    logits = _plain_logits(model)
    use_packed_attention(model)
    _switch_dropout_off(model)
    head: Any = model.get_output_embeddings()
    if not isinstance(head, nn.Linear) or head.bias is not None:
        raise ConfigError(
            f"model.path: {path} has an output head that is not one plain matrix; choose a model "
            "of another family"
        )
    _check_equal(model, logits, path)
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def _switch_dropout_off(model: nn.Module) -> None:
    """Serving has none, and logprobs must be those of the served distribution (rule 8)."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


_PROBE = ((1, 5, 9, 2, 7, 3), (4, 8, 6))
"""Ids of two short sequences; every vocabulary has them."""


@torch.no_grad()
def _plain_logits(model: PreTrainedModel) -> Tensor:
    """Return logits [tokens, V] as transformers itself computes them."""
    rows = [torch.tensor([ids], device=model.device) for ids in _PROBE]
    return torch.cat([model(row, use_cache=False).logits[0] for row in rows])


@torch.no_grad()
def _check_equal(model: PreTrainedModel, logits: Tensor, path: Path) -> None:
    """Refuse a family whose logits are more than ``hidden @ head.T`` or whose packing leaks."""
    expected = logits.float().log_softmax(-1)
    ids = torch.tensor([[id_ for row in _PROBE for id_ in row]], device=model.device)
    segments = Segments.of([len(row) for row in _PROBE], model.device)
    hidden = packed_hidden(model.base_model, ids, segments)
    best = expected.argmax(-1)
    ones = torch.ones(len(best), device=model.device)
    found, _ = chunked_logprobs(hidden, model.get_output_embeddings().weight, best, ones)
    difference = (found - expected.gather(-1, best[:, None])[:, 0]).abs().max()
    # transformers rounds logits to bfloat16, and the trainer does not.
    rounding = 0.1 + 2**-7 * float(logits.abs().max())
    if not float(difference) <= (1e-3 if logits.dtype == torch.float32 else rounding):
        raise ConfigError(
            f"model.path: the trainer computes other log-probabilities than transformers for the "
            f"{model.config.model_type} in {path} (difference {float(difference):.2g}); choose a "
            "model of another family"
        )


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.contiguous() for name, tensor in tensors.items()}
