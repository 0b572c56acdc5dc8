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
from typing import Literal

from pydantic import ValidationError

from rejoinder.config.engine import EngineConfig, ScriptedEngineConfig, TorchEngineConfig
from rejoinder.config.evaluation import EvaluationConfig
from rejoinder.config.faults import describe_fault, told_toml_fault
from rejoinder.config.gateway import (
    CLAUDE_CODE_SESSIONS,
    CODEX_SESSION,
    LOOPBACK,
    MAX_OPENING_CHARS,
    OPENCLAW_SESSION,
    SIDE_OPENINGS,
    GatewayConfig,
    KeyLimits,
    SessionRule,
)
from rejoinder.config.hints import (
    ExtractiveHintsConfig,
    HintsConfig,
    JudgeHintsConfig,
    LlmHintsConfig,
    NoHintsConfig,
)
from rejoinder.config.journal import JournalConfig
from rejoinder.config.judge import (
    CallableJudgeConfig,
    CallLimits,
    FeedbackJudgeConfig,
    JudgeConfig,
    JudgeLimits,
    LikelihoodJudgeConfig,
    LlmJudgeConfig,
    LlmVotesConfig,
    PluginJudgeConfig,
)
from rejoinder.config.model import ModelConfig
from rejoinder.config.section import Section
from rejoinder.config.trainer import (
    Baseline,
    DistilConfig,
    DistilKind,
    HintChoice,
    LoraConfig,
    LossConfig,
    TeacherConfig,
    TeacherEngineConfig,
    TeacherWeights,
    TrainerConfig,
)
from rejoinder.errors import ConfigError
from rejoinder.paths import expanded

__all__ = [
    "CLAUDE_CODE_SESSIONS",
    "CODEX_SESSION",
    "LOOPBACK",
    "MAX_OPENING_CHARS",
    "OPENCLAW_SESSION",
    "SIDE_OPENINGS",
    "Baseline",
    "CallLimits",
    "CallableJudgeConfig",
    "Config",
    "DistilConfig",
    "DistilKind",
    "EngineConfig",
    "EvaluationConfig",
    "ExtractiveHintsConfig",
    "FeedbackJudgeConfig",
    "GatewayConfig",
    "HintChoice",
    "HintsConfig",
    "JournalConfig",
    "JudgeConfig",
    "JudgeHintsConfig",
    "JudgeLimits",
    "KeyLimits",
    "LikelihoodJudgeConfig",
    "LlmHintsConfig",
    "LlmJudgeConfig",
    "LlmVotesConfig",
    "LoraConfig",
    "LossConfig",
    "ModelConfig",
    "NoHintsConfig",
    "PluginJudgeConfig",
    "ScriptedEngineConfig",
    "Section",
    "SessionRule",
    "TeacherConfig",
    "TeacherEngineConfig",
    "TeacherWeights",
    "TorchEngineConfig",
    "TrainerConfig",
    "cache_path",
    "load_config",
]


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
        return expanded(named).absolute()

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
    return expanded(named).absolute()


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
    except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: numbers, nesting
        raise ConfigError(f"{path} is not valid TOML: {told_toml_fault(error)}") from error
    for section, kind in (("engine", "torch"), ("judge", "likelihood"), ("hints", "off")):
        if isinstance(data.get(section), dict):  # a section without its kind means the default
            data[section].setdefault("kind", kind)
    try:
        return Config.model_validate_json(json.dumps(data, default=str))
    except ValidationError as error:
        faults = "\n".join(f"  {describe_fault(Config, fault)}" for fault in error.errors())
        raise ConfigError(f"{path} has faults:\n{faults}") from error
