"""From configuration to a hint judge."""

from __future__ import annotations

import pytest

from judge_fakes import FakeEngine, assistant, user
from rejoinder.config import (
    Config,
    ExtractiveHintsConfig,
    LikelihoodJudgeConfig,
    LlmHintsConfig,
    NoHintsConfig,
    load_config,
)
from rejoinder.errors import ConfigError
from rejoinder.judge.base import JudgeSetting
from rejoinder.judge.hints.factory import build_hint_judge


@pytest.fixture
def setting(tiny_tokenizer) -> JudgeSetting:
    engine = FakeEngine(lambda request, id_: -1.0)
    return JudgeSetting(LikelihoodJudgeConfig(), "default", engine, tiny_tokenizer, "tiny")


def test_hints_are_off_by_default(setting) -> None:
    assert Config().hints == NoHintsConfig()
    assert build_hint_judge(setting, Config().hints) is None


@pytest.mark.parametrize(
    "config",
    [
        ExtractiveHintsConfig(),
        LlmHintsConfig(),
        LlmHintsConfig(base_url="http://localhost:1/v1", model="m"),
    ],
    ids=lambda config: config.kind,
)
async def test_each_kind_is_built_and_its_fingerprint_names_it(setting, config) -> None:
    judge = build_hint_judge(setting, config)
    assert judge.maker.fingerprint.startswith(f"hints-{config.kind}-")
    await judge.close()


async def test_the_extractive_judge_takes_out_the_control_tokens_of_the_policy(setting) -> None:
    judge = build_hint_judge(setting, ExtractiveHintsConfig())
    await judge.check()
    said = "<|endoftext|>Please write in whole sentences.<|endoftext|>"
    hinting = await judge.hints([user("q")], assistant("a"), [user(said)])
    assert hinting.hints == ("Write in whole sentences.",)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"model": "m"}, r"hints\.model.*set hints\.base_url"),
        ({"base_url": "http://localhost:1/v1"}, r"hints\.base_url needs hints\.model"),
        ({"base_url": "https://judge.example/v1", "model": "m"}, r"hints\.allow_external"),
        (
            {"base_url": "http://localhost:1/v1", "model": "m", "api_key_env": "NO_SUCH_KEY"},
            r"hints\.api_key_env",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_keys_of_its_section(setting, settings, named) -> None:
    with pytest.raises(ConfigError, match=named):
        build_hint_judge(setting, LlmHintsConfig(**settings))


def test_a_section_without_its_kind_is_off_and_faults_are_named(tmp_path) -> None:
    path = tmp_path / "rejoinder.toml"
    path.write_text("[hints]\n")
    assert load_config(path).hints == NoHintsConfig()
    path.write_text('[hints]\nkind = "llm"\nvotes = 0\nquorum = 2\n')
    with pytest.raises(ConfigError, match=r"hints\.votes(.|\n)*hints\.quorum: no such key"):
        load_config(path)
    path.write_text('[hints]\nkind = "magic"\n')
    with pytest.raises(ConfigError, match=r"hints\.kind: 'magic' is not one of"):
        load_config(path)
