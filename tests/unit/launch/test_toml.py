"""Configuration as text: reading it back gives the same configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from rejoinder.config import (
    Config,
    GatewayConfig,
    JournalConfig,
    KeyLimits,
    LoraConfig,
    LossConfig,
    PluginJudgeConfig,
    ScriptedEngineConfig,
    SessionRule,
    TrainerConfig,
    load_config,
)
from rejoinder.errors import ConfigError
from rejoinder.launch.toml import config_toml, toml_value

RICH = Config(
    home='/data/with "quotes" and \\ and é🙂\x7f\n',
    engine=ScriptedEngineConfig(answer="tab\tand line\nend", tokens_per_second=2.5),
    judge=PluginJudgeConfig(name="mine", options={"odd key.": True, "n": 3, "x": 0.5, "s": "t"}),
    trainer=TrainerConfig(
        lora=LoraConfig(targets=("q_proj",)), trackers=("wandb",), loss=LossConfig(dual_clip=3.0)
    ),
    journal=JournalConfig(keep_days=1.5),
    gateway=GatewayConfig(
        session_rules=(
            SessionRule(name="a", look_in="system", after=('"id"\n', "é")),
            SessionRule(name="b", look_in="header.X-Chat"),
        ),
        key_limits=(KeyLimits(key="nightly", max_concurrent=4),),
    ),
)


@pytest.mark.parametrize("config", [Config(), RICH], ids=["defaults", "everything"])
def test_what_is_written_reads_back_as_the_same_configuration(
    config: Config, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(config_toml(config), "utf-8")
    assert load_config(file) == config


def test_what_is_not_set_is_shown_as_a_comment() -> None:
    assert "# main_temperature is not set" in config_toml(Config())


def test_notes_stand_behind_their_key() -> None:
    text = config_toml(Config(), {"gateway.port": "the API"})
    assert "port = 8080  # the API" in text
    assert text.count("# the API") == 1


def test_nested_values_become_inline_tables() -> None:
    assert toml_value([{"a b": 1}, True]) == '[{ "a b" = 1 }, true]'


@pytest.mark.parametrize("text", ["a = ", f"a = {'1' * 5000}", f"a = {'[' * 20_000}"])
def test_a_file_that_is_no_toml_is_a_fault_and_no_crash(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.toml is not valid TOML"):
        load_config(file)
