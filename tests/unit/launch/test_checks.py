"""Rule 10: a configuration that cannot learn or work is refused, and told what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from rejoinder.config import (
    CallableJudgeConfig,
    Config,
    EvaluationConfig,
    ExtractiveHintsConfig,
    GatewayConfig,
    JournalConfig,
    JudgeHintsConfig,
    LlmHintsConfig,
    LlmJudgeConfig,
    LoraConfig,
    LossConfig,
    ModelConfig,
    PluginJudgeConfig,
    ScriptedEngineConfig,
    TorchEngineConfig,
    TrainerConfig,
)
from rejoinder.errors import ConfigError
from rejoinder.launch.checks import faults, refuse_faults

BAD = {
    "scripted engine": (Config(engine=ScriptedEngineConfig()), "engine.kind = 'scripted'"),
    "hints for nobody to draw": (
        Config(trainer=TrainerConfig(algorithm="combine")),
        "trainer.algorithm = 'combine' learns from hints, and hints.kind is 'off'",
    ),
    "hints for nobody to learn from": (
        Config(hints=ExtractiveHintsConfig()),
        "hints.kind = 'extractive' has no effect with trainer.algorithm = 'binary'",
    ),
    "hints of a judge that writes none": (
        Config(trainer=TrainerConfig(algorithm="combine"), hints=JudgeHintsConfig()),
        "which needs judge.kind = 'llm'",
    ),
    "hints of a judge that is not asked": (
        Config(
            trainer=TrainerConfig(algorithm="opd"), judge=LlmJudgeConfig(), hints=JudgeHintsConfig()
        ),
        "an algorithm that learns from verdicts too",
    ),
    "one port twice": (
        Config(gateway=GatewayConfig(port=9000), engine=TorchEngineConfig(port=9000)),
        "gateway.port and engine.port are both 9000",
    ),
    "cache too small": (
        Config(engine=TorchEngineConfig(max_running=8, cache_slots=4)),
        "raise cache_slots",
    ),
    "engine that strangers reach": (
        Config(engine=TorchEngineConfig(host="0.0.0.0")),
        "engine.host: the engine knows no keys",
    ),
    "journal of another kind": (
        Config(journal=JournalConfig(url="postgresql://db/rejoinder")),
        "sqlite:///path/to/journal.db",
    ),
    "no keys off loopback": (Config(gateway=GatewayConfig(host="0.0.0.0")), "REJOINDER_API_KEYS"),
    "keys wanted and missing": (Config(gateway=GatewayConfig(require_keys=True)), "require_keys"),
    "quorum above votes": (Config(judge=LlmJudgeConfig(votes=3, quorum=4)), "lower the quorum"),
    "judge elsewhere": (
        Config(judge=LlmJudgeConfig(base_url="https://judge.example/v1", model="m")),
        "allow_external",
    ),
    "hints elsewhere": (
        Config(
            trainer=TrainerConfig(algorithm="combine"),
            hints=LlmHintsConfig(base_url="https://judge.example/v1", model="m"),
        ),
        "set hints.allow_external = true",
    ),
    "judge without model": (
        Config(judge=LlmJudgeConfig(base_url="http://127.0.0.1:9/v1")),
        "judge.model",
    ),
    "no such callable": (
        Config(judge=CallableJudgeConfig(target="no_such_package.judge:score")),
        "no module 'no_such_package.judge'",
    ),
    "no such function": (
        Config(judge=CallableJudgeConfig(target="json:scoer")),
        "the module 'json' has no 'scoer'",
    ),
    "no function": (Config(judge=CallableJudgeConfig(target="json:decoder")), "is not callable"),
    "no such model": (Config(model=ModelConfig(path="/models/none")), "'/models/none' is neither"),
    "no such plugin": (Config(judge=PluginJudgeConfig(name="nobody")), "'nobody'"),
    "no such algorithm": (
        Config(trainer=TrainerConfig(algorithm="magic")),
        "no algorithm is called 'magic'",
    ),
    "empty adapter": (
        Config(trainer=TrainerConfig(lora=LoraConfig(targets=()))),
        "trainer.lora.targets is empty",
    ),
    "band upside down": (
        Config(trainer=TrainerConfig(loss=LossConfig(icepop_low=2.0, icepop_high=1.0))),
        "icepop_low",
    ),
    "KL term that pulls nowhere": (
        Config(trainer=TrainerConfig(loss=LossConfig(kl_kind="k1", kl_coefficient=0.1))),
        "set kl_importance = true",
    ),
    "warm-up never ends": (
        Config(trainer=TrainerConfig(schedule="cosine", warmup_steps=10, schedule_steps=10)),
        "warmup_steps",
    ),
    "no prompts": (
        Config(evaluation=EvaluationConfig(every=1, prompts="nowhere.jsonl", scorer="json:loads")),
        "there is no file nowhere.jsonl",
    ),
}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REJOINDER_API_KEYS", raising=False)


def test_the_defaults_have_no_faults() -> None:
    assert faults(Config()) == []


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_learn_or_work_is_refused_with_the_remedy(name: str) -> None:
    config, remedy = BAD[name]
    found = faults(config)
    assert len(found) == 1
    assert remedy in found[0]


def test_all_faults_are_told_at_once() -> None:
    config = Config(engine=ScriptedEngineConfig(), judge=PluginJudgeConfig(name="nobody"))
    with pytest.raises(ConfigError) as refused:
        refuse_faults(config)
    assert "scripted" in str(refused.value)
    assert "nobody" in str(refused.value)


def test_a_judge_that_the_algorithm_does_not_need_has_no_faults() -> None:
    judge = LlmJudgeConfig(base_url="https://judge.example/v1", model="m", votes=3, quorum=4)
    config = Config(judge=judge, hints=ExtractiveHintsConfig())
    assert faults(config.model_copy(update={"trainer": TrainerConfig(algorithm="opd")})) == []
    assert faults(config.model_copy(update={"trainer": TrainerConfig(algorithm="combine")})) != []


def test_an_algorithm_that_does_not_exist_hides_no_fault_of_the_judge() -> None:
    config = Config(
        judge=PluginJudgeConfig(name="nobody"), trainer=TrainerConfig(algorithm="magic")
    )
    found = faults(config)
    assert any("'nobody'" in fault for fault in found)
    assert any("'magic'" in fault for fault in found)


def test_a_callable_of_the_working_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_judge.py").write_text("def score(*_):\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = Config(judge=CallableJudgeConfig(target="my_own_judge:score"))
    assert faults(config) == []


def test_a_module_that_cannot_be_imported_is_told_with_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_broken_judge.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    (fault,) = faults(Config(judge=CallableJudgeConfig(target="my_broken_judge:score")))
    assert "importing 'my_broken_judge' fails: ZeroDivisionError" in fault


def test_a_hub_id_is_no_fault_and_nobody_is_asked() -> None:
    assert faults(Config(model=ModelConfig(path="owner/name"))) == []


def test_keys_are_never_quoted_in_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_API_KEYS", "sk-SECRET-123")
    (fault,) = faults(Config())
    assert "SECRET" not in fault
