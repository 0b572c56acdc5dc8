"""From configuration to a judge."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from judge_fakes import FakeEngine, FakeJudge, assistant, judgement, user
from rejoinder.config import (
    CallableJudgeConfig,
    FeedbackJudgeConfig,
    LikelihoodJudgeConfig,
    LlmJudgeConfig,
    PluginJudgeConfig,
)
from rejoinder.errors import ConfigError
from rejoinder.judge import factory
from rejoinder.judge.base import JudgeSetting
from rejoinder.types import Fate


@pytest.fixture
def setting(word_tokenizer):
    engine = FakeEngine(lambda request, id_: -1.0)
    return lambda config: JudgeSetting(config, "default", engine, word_tokenizer, "tiny")


@pytest.mark.parametrize(
    "config",
    [
        LikelihoodJudgeConfig(),
        LlmJudgeConfig(),
        LlmJudgeConfig(base_url="http://localhost:1/v1", model="m"),
        CallableJudgeConfig(target="math:fsum"),
        FeedbackJudgeConfig(),
    ],
    ids=lambda config: config.kind,
)
async def test_each_kind_is_built_and_its_fingerprint_names_it(setting, config) -> None:
    judge = factory.build_judge(setting(config))
    assert judge.fingerprint.startswith(f"{config.kind}-")
    await judge.close()


async def test_the_feedback_judge_leaves_next_states_without_a_verdict(setting) -> None:
    judge = factory.build_judge(setting(FeedbackJudgeConfig()))
    await judge.check()
    outcome = await judge.judge([user("q")], assistant("a"), [user("great")])
    assert (outcome.score, outcome.why, outcome.votes) == (None, Fate.NO_SIGNAL, ())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"model": "m"}, r"judge\.model"),
        ({"api_key_env": "KEY"}, r"judge\.api_key_env"),
        ({"structured": False}, r"judge\.structured"),
        ({"model": "m", "api_key_env": "KEY"}, r"judge\.model and judge\.api_key_env"),
    ],
)
def test_regression_settings_of_an_endpoint_are_refused_where_there_is_none(
    setting, settings: dict[str, object], named: str
) -> None:
    with pytest.raises(ConfigError, match=named + r".*set judge\.base_url"):
        factory.build_judge(setting(LlmJudgeConfig(**settings)))


def make_plugin(setting: JudgeSetting) -> FakeJudge:
    judge = FakeJudge(judgement(setting.config.options["score"]))
    judge.fingerprint = "house-1"
    return judge


async def test_a_package_outside_adds_a_judge_by_an_entry_point(setting, monkeypatch) -> None:
    point = EntryPoint("house", f"{__name__}:make_plugin", factory.ENTRY_POINTS)
    monkeypatch.setattr(factory, "entry_points", lambda group: EntryPoints([point]))
    config = PluginJudgeConfig(name="house", options={"score": -1})
    judge = factory.build_judge(setting(config))
    assert judge.fingerprint == "house-1"
    assert (await judge.judge([], assistant("a"), [user("no")])).score == -1


def test_a_plugin_that_is_not_installed_is_refused_by_name(setting) -> None:
    with pytest.raises(ConfigError, match="'nobody'"):
        factory.build_judge(setting(PluginJudgeConfig(name="nobody")))
