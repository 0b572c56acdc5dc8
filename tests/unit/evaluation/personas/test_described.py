"""What decides a run is compared whole: nothing of it may differ among runs that are pooled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rejoinder.config import (
    Config,
    ExtractiveHintsConfig,
    GatewayConfig,
    JournalConfig,
    LlmHintsConfig,
    TorchEngineConfig,
)
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.personas import described
from rejoinder.evaluation.personas.described import (
    Described,
    describe,
    describe_system,
    differences,
    require_agreement,
)
from rejoinder.evaluation.personas.persona import load_persona
from rejoinder.evaluation.personas.settings import DEFAULT

CALM = load_persona("no-lists")


def system(algorithm: str = "binary", **sections: Any) -> dict[str, Any]:
    return describe_system(Config(**sections), DEFAULT, algorithm)


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"engine": TorchEngineConfig(context_length=512)}, "engine.context_length"),
        ({"gateway": GatewayConfig(main_temperature=1.0)}, "gateway.main_temperature"),
        ({"gateway": GatewayConfig(train_truncated_sampling=True)}, "gateway.train_truncated"),
    ],
)
def test_engine_and_sampling_of_the_gateway_are_settings(
    sections: dict[str, Any], key: str
) -> None:
    (changed,) = differences(system(), system(**sections))
    assert changed.startswith(f"configuration.{key}")


def test_who_draws_hints_is_a_setting() -> None:
    llm = LlmHintsConfig(base_url="http://127.0.0.1:9/v1", model="m")
    own, other = system("opd", hints=ExtractiveHintsConfig()), system("opd", hints=llm)
    assert "configuration.hints.kind" in differences(own, other)


def test_ports_home_and_journal_are_none() -> None:
    moved = system(
        home="/elsewhere",
        gateway=GatewayConfig(port=9000),
        engine=TorchEngineConfig(port=9001),
        journal=JournalConfig(url="sqlite:////elsewhere/j.db"),
    )
    assert moved == system()


def test_to_end_once_converged_is_a_setting_and_not_to_is_none() -> None:
    """So runs of before there was a choice agree with those that do not."""
    usual = describe((load_persona("no-lists"),), DEFAULT, "", {})
    assert "until_converged" not in usual["benchmark"]
    until = replace(DEFAULT, until_converged=True)
    assert describe((load_persona("no-lists"),), until, "", {}) != usual


def test_the_rules_are_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    before = describe((CALM,), DEFAULT, "phrasebook", {})
    monkeypatch.setattr(described, "_RULES", described._RULES[1:])
    described._rules_digest.cache_clear()
    try:
        after = describe((CALM,), DEFAULT, "phrasebook", {})
    finally:
        described._rules_digest.cache_clear()
    assert differences(before, after) == ["rules"]


RUN = Described("first.json", ("calm",), "binary", {"rules": "a", "configuration": {"x": 1}})


def test_seeds_of_a_method_agree_in_everything() -> None:
    other = replace(RUN, name="second.json", settings=RUN.settings | {"configuration": {"x": 2}})
    require_agreement([RUN, RUN])
    with pytest.raises(RejoinderError, match=r"first.*other settings than second.*\.x: 1 and 2\)"):
        require_agreement([RUN, other])


def test_packed_runs_and_others_are_not_compared() -> None:
    """They compute in other number formats, and a clock decides other things."""
    packed = replace(RUN, method="opd", settings=RUN.settings | {"packed": True})
    require_agreement([packed, packed])
    with pytest.raises(RejoinderError, match=r"other settings .*\(packed\)"):
        require_agreement([RUN, packed])


def test_methods_may_train_otherwise_but_not_be_measured_otherwise() -> None:
    trained = RUN.settings | {"configuration": {"x": 2}}
    require_agreement([RUN, replace(RUN, method="opd", settings=trained)])
    measured = RUN.settings | {"rules": "b"}
    with pytest.raises(RejoinderError, match=r"\(rules\)"):
        require_agreement([RUN, replace(RUN, method="opd", settings=measured)])
    require_agreement([RUN, replace(RUN, personas=("loud",), settings=measured)])
