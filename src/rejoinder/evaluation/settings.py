"""The settings of the demonstration, all in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rejoinder.config import (
    Baseline,
    Config,
    GatewayConfig,
    LikelihoodJudgeConfig,
    LoraConfig,
    LossConfig,
    TorchEngineConfig,
    TrainerConfig,
)
from rejoinder.evaluation.rules import DEFAULT_LIMITS, Limits


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What is asked, how it is sampled, how it trains, and when it ends."""

    updates: int = 6
    """Policy versions after which the people stop."""
    learning_s: float = 480.0
    """The people stop then at the latest, whatever the updates."""
    heldout: int = 48
    curve_every: int = 0
    """Measure each such version afterwards too; 0: only before and after."""
    people: int = 8
    """Who talk at the same time."""
    questions_per_session: tuple[float, ...] = (0.8, 0.15, 0.05)
    """Shares of sessions with one, two, three questions. Later questions of a session teach less of
    what is measured, first answers: the wish is not said again."""
    system: str = ""
    """The assistant's system prompt; empty: none."""
    wishes: tuple[str, ...] = ("Please answer in one short paragraph.",)
    """What a person adds to the first question of a conversation; one is chosen at random. Without
    one the small model runs into ``max_tokens`` nine times in ten, and an answer that was cut holds
    no end token to learn from."""
    voice: str = "plain_prose"
    temperature: float = 0.6
    max_tokens: int = 160
    """Room for the longest answer that satisfies. With less, answers that are only a little long
    are cut, and whether one is depends on chance more than on what the model has learnt."""
    measure_at_once: int = 16
    batch_size: int = 32
    """Of 32 answers some six displease at the start. With 16 a step has too few to tell the habit
    from chance: its direction is mostly noise, and on some seeds answers drift in length."""
    learning_rate: float = 4e-5
    """It falls in a line, so that the last updates settle what was learnt."""
    warmup_steps: int = 3
    """The first updates are small: moments of few samples would make them mere signs of noise."""
    share_of_schedule: float = 0.75
    """The updates made are this part of those after which the learning rate is zero."""
    baseline: Baseline = "leave_one_out"
    """Most answers please from the start. Without a baseline the praise of all of them outweighs
    what sets them apart, and the length of answers drifts from update to update."""
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.1
    kl_coefficient: float = 0.05
    aggregation: Literal["turn_mean", "token_mean"] = "token_mean"
    """A mean over turns weighs a token of a short answer more, and with verdicts alone lets answers
    shrink to a few words in some seeds; a mean over tokens and a light anchor do not."""
    lora: LoraConfig | None = None
    limits: Limits = DEFAULT_LIMITS
    drift_band: tuple[float, float] = (-2.0, -0.5)
    """Where the mean log-probability per token of the new answers under the start weights must
    lie: lower is text the start model would not write, higher is one phrase for everything."""

    def config(self, base: Config, home: Path, seed: int) -> Config:
        """Return the system's configuration for one run: the model and engine of ``base``."""
        engine = base.engine if isinstance(base.engine, TorchEngineConfig) else TorchEngineConfig()
        return Config(
            home=str(home),
            model=base.model,
            gateway=GatewayConfig(port=0),
            engine=engine.model_copy(
                update={"port": 0, "max_running": max(self.people, self.measure_at_once)}
            ),
            judge=LikelihoodJudgeConfig(),
            trainer=TrainerConfig(
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                schedule="linear",
                warmup_steps=self.warmup_steps,
                schedule_steps=max(
                    self.warmup_steps + 1, round(self.updates / self.share_of_schedule)
                ),
                baseline=self.baseline,
                betas=self.betas,
                weight_decay=self.weight_decay,
                lora=self.lora,
                seed=seed,
                keep_versions=self.updates + 2,
                loss=LossConfig(kl_coefficient=self.kl_coefficient, aggregation=self.aggregation),
            ),
        )


DEFAULT = DemoSettings()
