"""``[trainer]``: how the policy learns."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field, field_validator

from rejoinder.config.section import Section


class LoraConfig(Section):
    """Low-rank adapters instead of full weights."""

    rank: int = Field(16, ge=1)
    alpha: float = Field(32.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: tuple[str, ...] = (
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    )  # fmt: skip


DistilKind: TypeAlias = Literal["topk", "token", "tail", "jsd"]


TeacherWeights: TypeAlias = Literal["frozen", "current", "ema", "engine"]


HintChoice: TypeAlias = Literal["overlap", "token_overlap", "longest", "random"]


class DistilConfig(Section):
    """What a hinted teacher teaches; formulas in ``docs/reference/algorithms.md``."""

    kind: DistilKind = "topk"
    """``topk``: the student's most likely tokens, clipped. ``token``: the sampled token alone.
    ``tail``: reverse KL over the teacher's most likely tokens and the rest as one. ``jsd``: a
    generalised Jensen-Shannon divergence over the student's likewise."""
    top: int | None = Field(None, ge=1, le=256)
    """Tokens per position; not set: 4, 50 and 100 for ``topk``, ``tail`` and ``jsd``."""
    clip: float | None = Field(None, gt=0)
    """Bound of teacher minus student log-probability; not set: 1 for ``topk``, 5 for ``token``."""
    alpha: float = Field(0.5, ge=0, le=1)
    """Of ``jsd``: 1 is KL(student || teacher); 0 is KL(teacher || student), over the teacher's most
    likely tokens."""


class TeacherEngineConfig(Section):
    """The engine that teaches, with ``weights = "engine"``; its tokenizer must be the policy's."""

    url: str | None = None
    """Of an engine of this system (``rejoinder engine``); not set: the one that serves."""
    policy: str | None = None
    """Of those that it serves; not set: ``model.policy``."""
    version: int = Field(0, ge=0)
    """Of that policy; it must be loaded there. 0, the start weights, always is."""
    timeout_s: float = Field(60.0, gt=0)
    """For one answer under one hint; after it the step waits and is taken again."""
    allow_external: bool = False
    """Must be true for an engine off this machine: conversations leave it."""


class TeacherConfig(Section):
    """Who scores an answer with the hint in its prompt."""

    weights: TeacherWeights = "frozen"
    """The policy's start weights, those in training, a running average of these, or a model that an
    engine holds."""
    engine: TeacherEngineConfig = TeacherEngineConfig()
    decay: float = Field(0.8, gt=0, lt=1)
    """Share of the average that each optimizer step keeps, for ``ema``. The default averages about
    the last five steps; the persona benchmark saw no difference to 0.7 and 0.9. An open recipe of
    self-distillation (SDPO) has 0.95; with 0.999, usual in vision, the start weights would still
    count 0.9 after a hundred."""
    hint_times: int = Field(1, ge=1, le=4)
    """How often the hint stands in the prompt. Repeating whole prompts helps some models
    (Leviathan, Kalman and Matias 2025). Of the wishes tried on the embedded one, the short sentence
    gained (0.70 to 0.76 of 200 answers), and most others lost."""
    choice: HintChoice = "overlap"
    """Which of several hints teaches. ``overlap``: the one under which the teacher's most likely
    tokens are the student's most often; ``token_overlap`` decides that for each token anew."""


class LossConfig(Section):
    """The policy loss; formulas in ``docs/reference/algorithms.md``."""

    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.28, gt=0)
    dual_clip: float | None = Field(None, gt=1)
    correction: Literal["none", "bypass", "tis", "icepop", "decoupled"] = "tis"
    tis_cap: float = Field(2.0, gt=0)
    icepop_low: float = Field(0.5, gt=0)
    icepop_high: float = Field(2.0, gt=0)
    kl_coefficient: float = Field(0.0, ge=0)
    kl_kind: Literal["k1", "k2", "k3"] = "k3"
    kl_importance: bool = False
    """Weight the KL term by the importance ratio, for samples of older versions."""
    entropy_coefficient: float = 0.0
    aggregation: Literal["turn_mean", "token_mean", "trajectory_mean"] = "turn_mean"
    distil: DistilConfig = DistilConfig()


Baseline: TypeAlias = Literal["none", "leave_one_out"]


class TrainerConfig(Section):
    """The training loop."""

    algorithm: str = "binary"
    """``binary`` learns from verdicts, ``opd`` from hints, ``combine`` from both."""
    verdict_weight: float = Field(1.0, gt=0)
    """Of verdicts in ``combine``; beside ``baseline = "leave_one_out"`` 16 did well."""
    hint_weight: float = Field(1.0, gt=0)
    """Of hints in ``opd`` and ``combine``."""
    baseline: Baseline = "none"
    """``leave_one_out``: each verdict counts against the mean of the step's other verdicts. Less
    noise where most verdicts are alike; a step whose verdicts are all the same teaches nothing."""
    batch_size: int = Field(16, ge=1)
    """Samples per step."""
    learning_rate: float = Field(1e-5, gt=0)
    schedule: Literal["constant", "linear", "cosine", "inverse_sqrt"] = "constant"
    warmup_steps: int = Field(0, ge=0)
    schedule_steps: int = Field(1000, ge=1)
    """Where ``linear`` and ``cosine`` reach zero. ``inverse_sqrt`` never does: after
    ``warmup_steps`` the rate is ``learning_rate`` times sqrt(warmup_steps / step)."""
    average: float = Field(0.0, ge=0, lt=1)
    """Share of the served weights that each step keeps: what is served is a running average of the
    weights in training, so that one batch of odd samples jolts nobody. It costs a copy of the
    weights in fp32, in memory and in checkpoints. 0 serves the newest."""
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = Field(0.1, ge=0)
    grad_clip: float = Field(1.0, gt=0)
    micro_batch_tokens: int = Field(1024, ge=64)
    """Packed tokens per forward and backward pass; gradients accumulate over the step."""
    max_sample_tokens: int = Field(8192, ge=16)
    """Longer samples are dropped with the reason ``limit``."""
    logit_chunk: int = Field(256, ge=16)
    """Tokens whose logits exist at one time."""
    gradient_checkpointing: bool = False
    lora: LoraConfig | None = None
    """Not set: full weights train."""
    max_staleness: int = Field(4, ge=0)
    """Versions a sample may lag behind, those of steps that changed no weights not counted; older
    ones are dropped with the reason ``stale``, ``orphaned`` or ``rolled_back``."""
    auto_rollback: bool = True
    """Go back by itself to a version that pleased, once answers please far less than they did some
    steps ago (``docs/how-to/rollback.md`` says when)."""
    checkpoint_every: int = Field(4, ge=1)
    """Steps between checkpoints with optimizer and RNG; every step makes a version."""
    keep_checkpoints: int = Field(2, ge=1)
    keep_versions: int = Field(4, ge=1)
    """Newest versions whose weights stay on disk, those with the same weights counted once; live,
    pinned and checkpointed ones always do, and what ``auto_rollback`` would go back to."""
    seed: int = 0
    poll_s: float = Field(0.5, gt=0)
    nice: int = Field(5, ge=0, le=19)
    """Scheduling priority: a learning step must not slow down serving."""
    threads: int | None = Field(None, ge=1)
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    loss: LossConfig = LossConfig()
    teacher: TeacherConfig = TeacherConfig()

    @field_validator("betas")
    @classmethod
    def _are_decay_rates(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError("each must be at least 0 and below 1")
        return betas
