"""The configuration: strict, typed, read from TOML. ``rejoinder config show`` prints it resolved.

Unknown keys fail. Environment variables carry secrets and paths only: ``REJOINDER_HOME`` (data),
``REJOINDER_CACHE`` (converted models), ``REJOINDER_API_KEYS`` (``tenant:name:key``, comma
separated) and the variables that ``api_key_env`` of judge and hints name.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rejoinder.config_faults import describe_fault
from rejoinder.errors import ConfigError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Section(BaseModel):
    """Base of all sections: unknown keys fail, values are not coerced across types.

    Numbers are finite: a limit without end is no limit, and other programs' TOML cannot carry it.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ModelConfig(Section):
    """The policy that users are served and that trains."""

    policy: str = Field("default", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """Name of the policy; what clients put into ``model`` (any other listed alias works too)."""
    path: str = "embedded"
    """``embedded`` (SmolLM2-135M-Instruct from its package), a model directory, or a hub id."""
    family: Literal["auto", "generic", "qwen", "llama", "mistral", "glm", "deepseek", "gpt-oss"] = (
        "auto"
    )
    """How answers are read: which markers stand around thoughts and tool calls. ``auto`` asks the
    chat template; ``generic`` reads all text as content."""
    dtype: Literal["float32", "bfloat16", "auto"] = "auto"
    """``auto``: bfloat16 on CUDA, float32 on CPU (a bf16 backward pass is far slower there)."""
    device: str = "auto"
    """``auto`` takes CUDA if there is one; else ``cpu``, ``cuda``, ``cuda:1``."""


MAX_OPENING_CHARS = 200


class SessionRule(Section):
    """Where to find a session's id in requests of clients that send no header for it.

    Asked in order, when neither header, URL, body nor metadata names a session; the first rule that
    finds an id decides. Texts are searched for literally, so that a request costs no more than its
    length whatever its writer puts into it. Built in are rules for OpenClaw and for Claude Code.
    """

    name: str = Field(pattern=r"^[a-z0-9_-]{1,32}$")
    """How ``rejoinder explain turn`` calls the rule."""
    look_in: str = Field(
        pattern=r"^(first_user|system|prompt_cache_key|header\.[A-Za-z0-9-]{1,64}|metadata\..{1,64})$"
    )
    """``first_user`` (the first user message), ``system`` (the first system message),
    ``prompt_cache_key`` (the body's field), ``header.NAME`` or ``metadata.NAME``."""
    after: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field((), max_length=8)
    """Texts before the id, in this order, each after the one before it. The id is then the letters,
    digits and ``_-.:@/+=~`` that follow, at most 256. Without any, the whole value is the id."""

    @model_validator(mode="after")
    def _has_a_mark(self) -> SessionRule:
        if self.look_in in ("first_user", "system") and not self.after:
            raise ValueError(f"a session rule that looks in {self.look_in} needs after")
        return self


# What programs are known to send.
OPENCLAW_SESSION = SessionRule(
    name="openclaw", look_in="first_user", after=("\n\nRuntime: agent=", "| sessionId=")
)
CLAUDE_CODE_SESSIONS = (
    SessionRule(name="claude-code", look_in="header.X-Claude-Code-Session-Id"),
    SessionRule(name="claude-code-id", look_in="metadata.user_id", after=('"session_id":"',)),
    SessionRule(name="claude-code-old", look_in="metadata.user_id", after=("_session_",)),
)
"""In the order in which its versions came up with them, the newest first."""
SIDE_OPENINGS = (
    "read heartbeat.md",
    "follow the heartbeat monitor",
    "a scheduled reminder has been triggered",
    "a scheduled cron event was triggered",
    "an async command you ran earlier ",
    "an async command completion event was triggered",
    "<conversation>\n[user]:",
    "based on this conversation, generate a short 1-2 word filename slug",
    "pre-compaction memory flush",
    "please generate a four to five word title",
    "please write a 5-10 word title",
    "generate a title for this conversation",
    "### task:\ngenerate a concise",
    "### task:\ngenerate 1-3 broad tags",
    "### task:\nsuggest 3-5 relevant follow-up",
)


class GatewayConfig(Section):
    """The HTTP side."""

    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    workers: int = Field(1, ge=1, le=64)
    require_keys: bool = False
    """Also on loopback; off loopback keys are always required."""
    max_body_bytes: int = Field(8 << 20, ge=1024)
    max_concurrent: int = Field(256, ge=1)
    """Requests in progress per worker and per key; the next one gets 429."""
    max_queued: int = Field(1024, ge=1)
    """Requests in progress per worker in all; the next one gets 429."""
    request_timeout_s: float = Field(600.0, gt=0)
    engine_wait_s: float = Field(30.0, ge=0)
    """How long requests without a token wait for an engine that is away or starts again."""
    default_max_tokens: int = Field(512, ge=1)
    session_idle_s: float = Field(1800.0, gt=0)
    """A session without a request for so long is closed; a later match reopens it."""
    train_truncated_sampling: bool = False
    """Let turns sampled with top_p, top_k, min_p or penalties train. Off: served only."""
    main_temperature: float | None = Field(None, ge=0.05, le=2.0)
    """Overrides the temperature of main turns (and drops truncation), so that they train."""
    side_openings: tuple[Annotated[str, Field(min_length=1, max_length=MAX_OPENING_CHARS)], ...] = (
        Field(SIDE_OPENINGS, max_length=100)
    )
    """A request whose last user message begins so is a side turn unless it says its type: programs
    ask so for titles, heartbeats and memory. Lower case, and compared without regard to case."""
    session_rules: tuple[SessionRule, ...] = Field(
        (OPENCLAW_SESSION, *CLAUDE_CODE_SESSIONS), max_length=16
    )

    @field_validator("side_openings")
    @classmethod
    def _are_lower_case(cls, openings: tuple[str, ...]) -> tuple[str, ...]:
        if any(opening != opening.lower() for opening in openings):
            raise ValueError("write them in lower case")
        return openings


class TorchEngineConfig(Section):
    """The in-process PyTorch engine (a process of its own, reached over loopback HTTP)."""

    kind: Literal["torch"] = "torch"
    host: str = "127.0.0.1"
    port: int = Field(8081, ge=0, le=65535)
    max_running: int = Field(16, ge=1)
    """Answers to people that are computed together; judges have places besides, at most an eighth
    as many, so that people who talk without a pause do not keep verdicts waiting."""
    max_waiting: int = Field(1024, ge=1)
    cache_slots: int = Field(32, ge=2)
    """KV slots: running sequences and finished ones kept for prefix reuse."""
    context_length: int | None = Field(None, ge=64)
    """Not set: what the model's configuration says."""
    prefill_chunk: int = Field(128, ge=8)
    """Prompt tokens per step: bounds how long a prompt stalls the others."""
    threads: int | None = Field(None, ge=1)
    """CPU threads; not set: PyTorch chooses."""
    poll_s: float = Field(0.5, gt=0)
    """How often the registry is asked for a new live version."""


class ScriptedEngineConfig(Section):
    """Answers with fixed text at a fixed rate: for tests and gateway benchmarks, never a claim."""

    kind: Literal["scripted"] = "scripted"
    answer: str = "A scripted answer."
    tokens_per_second: float | None = None
    """Not set: at once."""
    context_length: int = 8192


EngineConfig = Annotated[TorchEngineConfig | ScriptedEngineConfig, Field(discriminator="kind")]


class JournalConfig(Section):
    """Where everything that matters is kept."""

    url: str | None = None
    """SQLAlchemy URL; not set: ``sqlite:///<home>/journal.db``."""
    keep_days: float | None = Field(None, gt=0)
    """Conversations older than this are deleted by the retention pass; not set: none are."""
    max_bytes: int | None = Field(None, gt=0)
    """The retention pass deletes the oldest ended conversations above this size."""


class CallLimits(Section):
    """How many calls at once, and how long one may take."""

    concurrency: int = Field(2, ge=1)
    timeout_s: float = Field(60.0, gt=0)


class JudgeLimits(CallLimits):
    """Shared by all judges."""

    attempts: int = Field(4, ge=1)
    """Calls per turn before it becomes ``judge_failed``; the wait doubles from one second."""


class LikelihoodJudgeConfig(JudgeLimits):
    """Compares the model's probabilities of the verdict labels; works with a small model."""

    kind: Literal["likelihood"] = "likelihood"
    threshold: float = 0.0
    """Log-odds above which an answer counts as good; chosen on the development split."""
    margin: float = Field(0.2, ge=0)
    """|log-odds - threshold| below this is *unsure*: no verdict."""


class LlmVotesConfig(CallLimits):
    """Votes of a language model: on verdicts, or on hints."""

    base_url: str | None = None
    """OpenAI-compatible endpoint (``http://host:port/v1``); not set: the engine, frozen weights."""
    model: str | None = None
    api_key_env: str | None = None
    allow_external: bool = False
    """Must be true for an endpoint off this machine: conversations leave it."""
    votes: int = Field(3, ge=1)
    temperature: float = Field(0.6, ge=0)
    max_tokens: int = Field(1024, ge=16)
    context_messages: int = Field(6, ge=1)
    max_chars: int = Field(24000, ge=1000)
    """Conversation text in one judge prompt; longer parts are shortened in the middle."""
    structured: bool = True
    """Ask for JSON by ``response_format`` where the endpoint supports it."""


class LlmJudgeConfig(JudgeLimits, LlmVotesConfig):
    """m votes of a language model with a majority and a quorum."""

    kind: Literal["llm"] = "llm"
    quorum: int | None = Field(None, ge=1)
    """Votes that must succeed; not set: a majority of ``votes``."""


class CallableJudgeConfig(JudgeLimits):
    """A Python callable ``package.module:function`` of (context, answer, next state)."""

    kind: Literal["callable"] = "callable"
    target: str = Field(pattern=r"^\w+(\.\w+)*:\w+(\.\w+)*$")


class FeedbackJudgeConfig(JudgeLimits):
    """Only explicit feedback scores; next states are recorded and not judged."""

    kind: Literal["feedback"] = "feedback"


class PluginJudgeConfig(JudgeLimits):
    """A judge of another package, found by its name in the entry points ``rejoinder.judges``."""

    kind: Literal["plugin"] = "plugin"
    name: str = Field(min_length=1)
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Handed to the plugin as they are."""


JudgeConfig = Annotated[
    LikelihoodJudgeConfig
    | LlmJudgeConfig
    | CallableJudgeConfig
    | FeedbackJudgeConfig
    | PluginJudgeConfig,
    Field(discriminator="kind"),
]


class NoHintsConfig(Section):
    """Next states give scores only."""

    kind: Literal["off"] = "off"


class ExtractiveHintsConfig(Section):
    """The person's own words about manner, turned into an instruction; needs no model. English."""

    kind: Literal["extractive"] = "extractive"


class LlmHintsConfig(LlmVotesConfig):
    """m votes of a language model; a hint needs a majority of all of them."""

    kind: Literal["llm"] = "llm"


class JudgeHintsConfig(Section):
    """One pass: each vote of the judge, with ``judge.kind = "llm"``, gives a score and a hint."""

    kind: Literal["judge"] = "judge"


HintsConfig = Annotated[
    NoHintsConfig | ExtractiveHintsConfig | LlmHintsConfig | JudgeHintsConfig,
    Field(discriminator="kind"),
]


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
    decay: float = Field(0.95, gt=0, lt=1)
    """Share of the average that each optimizer step keeps, for ``ema``. The default averages about
    the last 20 steps, as an open recipe of self-distillation (SDPO) does; with 0.999, usual in
    vision, the start weights still count 0.9 after a hundred. Not tuned here."""
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
    """Of verdicts in ``combine``."""
    hint_weight: float = Field(1.0, gt=0)
    """Of hints in ``opd`` and ``combine``."""
    baseline: Baseline = "none"
    """``leave_one_out``: each verdict counts against the mean of the step's other verdicts. Less
    noise where most verdicts are alike; a step whose verdicts are all the same teaches nothing."""
    batch_size: int = Field(16, ge=1)
    """Samples per step."""
    learning_rate: float = Field(1e-5, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = Field(0, ge=0)
    schedule_steps: int = Field(1000, ge=1)
    """Where ``linear`` and ``cosine`` reach zero."""
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
    """Versions a sample may lag behind; older ones are dropped with the reason ``stale``."""
    checkpoint_every: int = Field(4, ge=1)
    """Steps between checkpoints with optimizer and RNG; every step writes a version."""
    keep_checkpoints: int = Field(2, ge=1)
    keep_versions: int = Field(4, ge=1)
    """Newest versions whose weights stay on disk; live, pinned and checkpointed ones always do."""
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


class EvaluationConfig(Section):
    """Fixed prompts answered by each version, scored by a callable, kept with the version."""

    every: int = Field(0, ge=0)
    """Versions between evaluations; 0: never."""
    prompts: str | None = None
    """JSONL file of ``{"messages": [...]}``."""
    scorer: str | None = Field(None, pattern=r"^[\w.]+:[\w.]+$")
    """``package.module:function`` of (messages, answer) -> float."""
    max_tokens: int = Field(160, ge=1)

    @model_validator(mode="after")
    def _complete(self) -> EvaluationConfig:
        if self.every and not (self.prompts and self.scorer):
            raise ValueError("evaluation.every needs evaluation.prompts and evaluation.scorer")
        return self


class Config(Section):
    """All sections. Every one has defaults that work on a laptop with the embedded model."""

    home: str = ""
    """Data directory; empty: ``REJOINDER_HOME``, else ``~/.rejoinder``."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    model: ModelConfig = ModelConfig()
    gateway: GatewayConfig = GatewayConfig()
    engine: EngineConfig = TorchEngineConfig()
    journal: JournalConfig = JournalConfig()
    judge: JudgeConfig = LikelihoodJudgeConfig()
    hints: HintsConfig = NoHintsConfig()
    trainer: TrainerConfig = TrainerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def home_path(self) -> Path:
        """The data directory, absolute."""
        named = self.home or os.environ.get("REJOINDER_HOME") or "~/.rejoinder"
        return Path(named).expanduser().absolute()

    @property
    def journal_url(self) -> str:
        """SQLAlchemy URL of the journal."""
        return self.journal.url or f"sqlite:///{self.home_path / 'journal.db'}"

    @property
    def key_variables(self) -> tuple[str, ...]:
        """Names of the environment variables that hold keys of endpoints."""
        named = [
            section.api_key_env
            for section in (self.judge, self.hints)
            if isinstance(section, LlmVotesConfig) and section.api_key_env
        ]
        return tuple(dict.fromkeys(named))

    @property
    def versions_path(self) -> Path:
        """Directory of policy versions and checkpoints."""
        return self.home_path / "policies"


def cache_path() -> Path:
    """Directory of converted models."""
    named = os.environ.get("REJOINDER_CACHE") or "~/.cache/rejoinder"
    return Path(named).expanduser().absolute()


def load_config(path: Path | None) -> Config:
    """Read a TOML file (None: all defaults).

    Raises:
        ConfigError: the file is missing, not TOML, or has an unknown key or a bad value; the
            message lists every fault with its key.
    """
    if path is None:
        return Config()
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for section, kind in (("engine", "torch"), ("judge", "likelihood"), ("hints", "off")):
        if isinstance(data.get(section), dict):  # a section without its kind means the default
            data[section].setdefault("kind", kind)
    try:
        return Config.model_validate_json(json.dumps(data, default=str))
    except ValidationError as error:
        faults = "\n".join(f"  {describe_fault(Config, fault)}" for fault in error.errors())
        raise ConfigError(f"{path} has faults:\n{faults}") from error
