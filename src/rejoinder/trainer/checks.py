"""Configurations that cannot learn are refused at start (rule 10). Knows no PyTorch.

That samples carry the log-probabilities they were sampled with is no question here: the journal
makes no sample of a turn that lacks one.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from rejoinder.config import (
    DistilConfig,
    LossConfig,
    TeacherConfig,
    TeacherEngineConfig,
    TrainerConfig,
)
from rejoinder.errors import ConfigError
from rejoinder.net import is_local


def check_training(config: TrainerConfig) -> None:
    """Refuse settings that cannot train.

    Raises:
        ConfigError: all faults, a line each.
    """
    found = list(training_faults(config))
    if found:
        raise ConfigError("\n".join(found))


def training_faults(config: TrainerConfig) -> Iterator[str]:
    """Yield why settings cannot train: a line each, with the key and the remedy."""
    yield from _loss_faults(config.loss)
    yield from _distil_faults(config.loss.distil)
    yield from _teacher_faults(config.teacher)
    ends = config.schedule in ("linear", "cosine")
    if ends and config.warmup_steps >= config.schedule_steps:
        yield (
            "trainer.warmup_steps must be below trainer.schedule_steps: the learning rate would "
            "reach zero before it is warm"
        )
    if config.average and config.loss.correction == "none":
        yield (
            "trainer.average serves other weights than train, and trainer.loss.correction = 'none' "
            "corrects nothing: set it to 'tis', or trainer.average to 0"
        )
    if config.lora is not None and not config.lora.targets:
        yield "trainer.lora.targets is empty, so no weight would train: name at least one module"


def _distil_faults(config: DistilConfig) -> Iterator[str]:
    """Yield settings that the kind of distillation does not heed."""
    fields = type(config).model_fields
    for key, kinds in (("top", "topk, tail, jsd"), ("clip", "topk, token"), ("alpha", "jsd")):
        is_set = getattr(config, key) != fields[key].default
        if is_set and config.kind not in kinds.split(", "):
            yield (
                f"trainer.loss.distil.{key} has no effect with trainer.loss.distil.kind = "
                f"{config.kind!r}: remove it, or choose one of {kinds}"
            )


def _teacher_faults(config: TeacherConfig) -> Iterator[str]:
    if config.weights != "ema" and config.decay != type(config).model_fields["decay"].default:
        yield (
            f"trainer.teacher.decay has no effect with trainer.teacher.weights = "
            f"{config.weights!r}: remove it, or choose 'ema'"
        )
    if config.weights != "engine":
        if config.engine != TeacherEngineConfig():
            yield (
                f"trainer.teacher.engine has no effect with trainer.teacher.weights = "
                f"{config.weights!r}: remove it, or choose 'engine'"
            )
    elif config.engine.url is not None:
        host = _host(config.engine.url)
        if host is None:
            yield (
                "trainer.teacher.engine.url is not of the form http://host:port, without user or "
                "password"
            )
        elif not is_local(host) and not config.engine.allow_external:
            yield (
                f"trainer.teacher.engine.url: conversations would leave this machine for {host}: "
                "set trainer.teacher.engine.allow_external = true if they may"
            )


def external_teachers(config: TeacherConfig) -> list[str]:
    """Return the host off this machine that conversations are sent to for teaching, if any."""
    if config.weights != "engine" or config.engine.url is None:
        return []
    host = _host(config.engine.url) or ""
    return [] if is_local(host) else [host]


def _host(url: str) -> str | None:
    """Return the host of ``http://host:port``; None where a URL is none of this form."""
    try:
        parts = urlsplit(url)
        is_plain = parts.port != 0 and parts.username is None and parts.password is None
    except ValueError:
        return None
    return parts.hostname if is_plain and parts.scheme in {"http", "https"} else None


def _loss_faults(config: LossConfig) -> Iterator[str]:
    if config.icepop_low >= config.icepop_high:
        yield (
            "trainer.loss.icepop_low must be below trainer.loss.icepop_high: every token would be "
            "left out"
        )
    if config.kl_importance and not config.kl_coefficient:
        yield (
            "trainer.loss.kl_importance weights a KL term that trainer.loss.kl_coefficient = 0 "
            "turns off: set the coefficient, or remove kl_importance"
        )
    if config.kl_kind == "k1" and config.kl_coefficient and not config.kl_importance:
        # Its gradient is that of l, whose mean over the policy's own samples is zero.
        yield (
            "trainer.loss.kl_kind = 'k1' without trainer.loss.kl_importance pulls nowhere, its "
            "gradient is noise around zero: set kl_importance = true, or choose 'k2' or 'k3'"
        )
