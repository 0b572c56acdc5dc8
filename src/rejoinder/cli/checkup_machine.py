"""Checks of the machine: Python, packages, PyTorch, processors, memory, disk."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from rejoinder.algorithms.registry import build_algorithm
from rejoinder.cli.checkup import Check, Finding, fail, ok, warn
from rejoinder.cli.terminal import size
from rejoinder.config import Config, TorchEngineConfig, TrainerConfig
from rejoinder.models.embedded import resolve_model

OLDEST, BEYOND = (3, 11), (3, 14)
_FULL_TRAINING = 4
"""Weights, gradients and Adam's two moments; averages and the start weights come on top."""
_SERVING = 3
"""Start weights for the judge, the live version, and the next one while it is taken up."""
_CHECKPOINT = 3
"""Weights and two moments."""
_LITTLE_DISK = 1 << 30


def python(_config: Config) -> Iterator[Finding]:
    """Python's version."""
    text = f"{platform.python_version()} at {sys.executable}"
    if OLDEST <= sys.version_info[:2] < BEYOND:
        yield ok("python", text)
    else:
        yield fail("python", text, "use Python 3.11, 3.12 or 3.13")


def packages(_config: Config) -> Iterator[Finding]:
    """Installed packages against what this one asks for."""
    from packaging.requirements import Requirement

    missing, wrong = [], []
    for line in requires("rejoinder") or ():
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(wanted.name)
        except PackageNotFoundError:
            missing.append(wanted.name)
            continue
        if not wanted.specifier.contains(found, prereleases=True):
            wrong.append(f"{wanted.name} {found} (wanted {wanted.specifier})")
    if missing or wrong:
        text = "; ".join(filter(None, [", ".join(missing) and f"missing: {', '.join(missing)}",
                                       ", ".join(wrong)]))  # fmt: skip
        yield fail("packages", text, "install again: `pip install -c constraints.txt -e .`")
    else:
        yield ok("packages", "all there, in versions that fit")


def pytorch(config: Config) -> Iterator[Finding]:
    """PyTorch's build and the device it will use."""
    import torch

    from rejoinder.models.loading import pick_device, pick_dtype

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    device = pick_device(config.model)
    dtype = pick_dtype(config.model, device)
    text = f"{torch.__version__} ({build} build), device {device}, {str(dtype).split('.')[-1]}"
    if device.type == "cpu" and dtype is torch.bfloat16 and not _has_fast_bfloat16():
        yield warn("pytorch", text, "this processor is slow in bfloat16: set model.dtype = 'auto'")
    elif device.type == "cpu" and shutil.which("nvidia-smi") and not torch.version.cuda:
        remedy = "there is an NVIDIA GPU: see docs/how-to/pytorch-builds.md for a CUDA build"
        yield warn("pytorch", text, remedy)
    else:
        yield ok("pytorch", text)


def _has_fast_bfloat16() -> bool:
    import torch

    return bool(torch.cpu._is_avx512_bf16_supported())  # noqa: SLF001 - no public name for it


def processors(config: Config) -> Iterator[Finding]:
    """Cores: the engine, the trainer and the gateway share them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = f"{cores} cores"
    if cores is not None and cores < 2:
        remedy = "answers will pause while a step is taken: two cores or more are better"
        yield warn("processors", text, remedy)
    elif config.gateway.workers > (cores or 1):
        remedy = f"lower gateway.workers = {config.gateway.workers} to {cores} at most"
        yield warn("processors", text, remedy)
    else:
        yield ok("processors", text)


def memory(config: Config) -> Iterator[Finding]:
    """Memory against what weights, gradients and optimizer take."""
    import psutil

    weights = _weights_bytes(config)
    training = 1 if config.trainer.lora is not None else _FULL_TRAINING + _copies(config.trainer)
    needed = weights * (training + _SERVING)
    free = psutil.virtual_memory().available
    text = f"{size(free)} free; the model takes about {size(needed)} while it trains"
    if free < needed:
        remedy = "train an adapter (a [trainer.lora] section), or choose a smaller model"
        yield warn("memory", text, remedy)
    else:
        yield ok("memory", text)


def _averages(trainer: TrainerConfig) -> int:
    """Return how many running averages of the weights the trainer holds, and a checkpoint too."""
    is_taught_by_one = _teacher(trainer) == "ema"
    return bool(trainer.average) + is_taught_by_one


def _copies(trainer: TrainerConfig) -> int:
    """Return how many more sets of weights full training holds."""
    starts = _teacher(trainer) == "frozen" or bool(trainer.loss.kl_coefficient)
    return _averages(trainer) + starts


def _teacher(trainer: TrainerConfig) -> str | None:
    return trainer.teacher.weights if build_algorithm(trainer).needs_hints else None


def disk(config: Config) -> Iterator[Finding]:
    """Disk space against what kept versions and checkpoints take."""
    place = config.home_path
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    trainer = config.trainer
    checkpoint = _CHECKPOINT + _averages(trainer)
    full = trainer.keep_versions + checkpoint * (trainer.keep_checkpoints + 1)
    needed = _weights_bytes(config) * full if trainer.lora is None else _LITTLE_DISK
    text = f"{size(free)} free at {place}; versions and checkpoints take about {size(needed)}"
    if free < _LITTLE_DISK:
        yield fail("disk", text, "free some space, or choose another home")
    elif free < needed:
        remedy = "lower trainer.keep_versions and trainer.keep_checkpoints, or choose another home"
        yield warn("disk", text, remedy)
    else:
        yield ok("disk", text)


def _weights_bytes(config: Config) -> int:
    """Return the size of the policy's weights as they are trained."""
    if not isinstance(config.engine, TorchEngineConfig):
        return 0
    model = resolve_model(config.model.path)
    return sum(file.stat().st_size for file in model.glob("*.safetensors"))


CHECKS: dict[str, Check] = {
    "python": python,
    "packages": packages,
    "pytorch": pytorch,
    "processors": processors,
    "memory": memory,
    "disk": disk,
}
