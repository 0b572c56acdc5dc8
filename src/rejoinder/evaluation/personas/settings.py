"""The settings of the persona benchmark, and the system's configuration that follows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rejoinder.algorithms import build_algorithm
from rejoinder.config import (
    Config,
    ExtractiveHintsConfig,
    LossConfig,
    NoHintsConfig,
    TeacherConfig,
    TorchEngineConfig,
    TrainerConfig,
)
from rejoinder.types import Json

TRAINING = TrainerConfig(
    batch_size=16,
    learning_rate=6e-5,
    schedule="inverse_sqrt",
    warmup_steps=4,
    average=0.5,
    verdict_weight=16.0,
    baseline="leave_one_out",
    betas=(0.9, 0.98),
    teacher=TeacherConfig(weights="ema", hint_times=2),
    loss=LossConfig(kl_coefficient=0.05, aggregation="turn_mean"),
)
"""How the system trains where the configuration file says nothing else. Chosen by runs of
``combine``: ``docs/how-to/compare-methods.md`` and ``docs/open-work.md`` have what was tried.

AdamW takes no notice of a gradient's size: where all verdicts are alike they are zero and hints
lead, however little these count; elsewhere a large ``verdict_weight`` lets verdicts lead."""


@dataclass(frozen=True, slots=True)
class BenchmarkSettings:
    """What is asked of every run, and when it ends: at the first limit reached."""

    sessions: int = 200
    """A persona that has not converged by then is censored there."""
    updates: int = 24
    """Policy versions that a run makes."""
    minutes: float = 60.0
    """Of learning, measurements in between included."""
    heldout: int = 48
    """Held-out tasks of each persona, asked of each version measured."""
    measure_every: int = 1
    """Updates between measurements; the start and the last version are always measured."""
    people: int = 8
    """Who talk at the same time."""
    answers: int | None = None
    """Answers of a session after which a person leaves, content or not; None: as many as the
    persona bears. With 1, all samples are first answers, which is what is measured."""
    until_converged: bool = False
    """End a run as soon as its personas have converged: it tells how soon, not how far it gets."""
    measure_at_once: int = 16
    temperature: float = 0.6


DEFAULT = BenchmarkSettings()


def system_config(
    base: Config, settings: BenchmarkSettings, algorithm: str, seed: int, home: Path
) -> Config:
    """Return the configuration of one run's system.

    Args:
        base: what it sets itself stands; how to train is otherwise ``TRAINING``, and who draws
            hints, for algorithms that learn from them, the extractive hint judge.
        settings: of the run.
        algorithm: name of the algorithm.
        seed: of training.
        home: of the system's data; ports are free ones and the journal lies there, whatever
            ``base`` says, so that runs never meet.
    """
    engine = base.engine
    if isinstance(engine, TorchEngineConfig):
        at_once = max(settings.people, settings.measure_at_once, engine.max_running)
        slots = max(engine.cache_slots, at_once)
        engine = engine.model_copy(update={"port": 0, "max_running": at_once, "cache_slots": slots})
    needs_hints = build_algorithm(TrainerConfig(algorithm=algorithm)).needs_hints
    hints = base.hints
    if needs_hints is (hints.kind == "off"):
        hints = ExtractiveHintsConfig() if needs_hints else NoHintsConfig()
    training = overlay(
        TRAINING.model_dump(exclude_unset=True), base.trainer.model_dump(exclude_unset=True)
    )
    return base.model_copy(
        update={
            "home": str(home),
            "gateway": base.gateway.model_copy(update={"host": "127.0.0.1", "port": 0}),
            "engine": engine,
            "hints": hints,
            "journal": base.journal.model_copy(update={"url": None}),
            "trainer": TrainerConfig.model_validate(
                training | {"algorithm": algorithm, "seed": seed}
            ),
        }
    )


def overlay(under: Json, over: Json) -> Json:
    """Return ``under`` with the values of ``over``, table by table."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(value, dict) and isinstance(below, dict)
        merged[key] = overlay(below, value) if both and below is not None else value
    return merged
