"""The doctor: what it finds, and that it never stops at the first fault."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from judge_fakes import FakeEngine
from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.cli import checkup, checkup_machine, checkup_model, checkup_system
from rejoinder.cli.checkup import Finding, State, fail, ok, run_checks, warn
from rejoinder.cli.checkup_model import next_turn_extends
from rejoinder.cli.main import app
from rejoinder.config import (
    CallableJudgeConfig,
    Config,
    ExtractiveHintsConfig,
    GatewayConfig,
    HintsConfig,
    JudgeHintsConfig,
    LlmHintsConfig,
    LlmJudgeConfig,
    TorchEngineConfig,
    TrainerConfig,
)
from rejoinder.engine.base import EngineInfo
from rejoinder.errors import ConfigError, EngineUnavailable
from rejoinder.journal.records import RoleReport
from rejoinder.journal.sql import SqlJournal
from rejoinder.judge.base import JudgeSetting
from rejoinder.launch.home import ensure_home, home_lock, run_path
from rejoinder.launch.ports import bind_port, bound_port
from rejoinder.models.tokenizer import ModelTokenizer


def test_an_error_raised_by_a_room_is_a_failure_and_the_others_still_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_config: Config) -> Iterator[Finding]:
        yield ok("first", "fine")
        raise ConfigError("set the key")

    monkeypatch.setattr(checkup_machine, "CHECKS", {"broken": broken})
    monkeypatch.setattr(checkup_model, "CHECKS", {})
    monkeypatch.setattr(checkup_system, "CHECKS", {"last": lambda _: iter([ok("last", "fine")])})
    found = list(run_checks(Config()))
    assert [finding.state for finding in found] == [State.OK, State.FAIL, State.OK]
    assert found[1].remedy == "set the key"


@pytest.mark.parametrize(
    ("finding", "code"), [(ok("x", "y"), 0), (warn("x", "y", "z"), 0), (fail("x", "y", "z"), 1)]
)
def test_only_a_failure_gives_an_exit_code(
    finding: Finding, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "run_checks", lambda _: iter([finding]))
    assert CliRunner().invoke(app, ["doctor"]).exit_code == code
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert json.loads(result.stdout)["checks"][0]["state"] == finding.state


def test_a_taken_port_fails_and_a_free_one_does_not() -> None:
    with bind_port("127.0.0.1", 0, "gateway.port") as taken:
        config = Config(
            gateway=GatewayConfig(port=bound_port(taken)), engine=TorchEngineConfig(port=0)
        )
        found = {finding.name: finding for finding in checkup_system.ports(config)}
    assert found["gateway.port"].state is State.FAIL
    assert "set gateway.port" in found["gateway.port"].remedy
    assert found["engine.port"].state is State.OK


@pytest.mark.parametrize(
    ("reported", "state"), [("ready", State.OK), ("stopped", State.FAIL), (None, State.FAIL)]
)
def test_a_taken_port_is_ours_only_if_a_living_role_of_this_home_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reported: str | None, state: State
) -> None:
    """Another home's system answers on the port too, so an answer proves nothing."""
    monkeypatch.setenv("REJOINDER_HOME", str(tmp_path))
    with bind_port("127.0.0.1", 0, "gateway.port") as taken:
        port = bound_port(taken)
        config = Config(gateway=GatewayConfig(port=port), engine=TorchEngineConfig(port=0))
        with SqlJournal(config.journal_url) as journal:
            if reported is not None:
                detail = {"host": "127.0.0.1", "port": port}
                journal.report(RoleReport("gateway", "gateway-1", 1, reported, detail))
        found = {finding.name: finding for finding in checkup_system.ports(config)}
    assert found["gateway.port"].state is state


def test_a_port_that_is_taken_while_this_home_starts_may_be_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_HOME", str(tmp_path))
    ensure_home(Config())
    with bind_port("127.0.0.1", 0, "gateway.port") as taken:
        gateway = GatewayConfig(port=bound_port(taken))
        config = Config(gateway=gateway, engine=TorchEngineConfig(port=0))

        def found() -> Finding:
            return next(one for one in checkup_system.ports(config) if one.name == "gateway.port")

        with home_lock(config):
            assert found().state is State.WARN
            assert "is starting" in found().remedy
        (run_path(config) / "up.lock").write_text("0x", "utf-8")  # a lock that says nothing
        assert found().state is State.FAIL


def test_a_template_that_only_adds_text_extends_the_turn_before(
    tiny_tokenizer: ModelTokenizer,
) -> None:
    assert next_turn_extends(ChatTemplateRenderer(tiny_tokenizer), tiny_tokenizer)


def test_a_template_that_marks_the_last_answer_otherwise_is_found(
    tiny_tokenizer: ModelTokenizer,
) -> None:
    """B037: a template may rewrite earlier answers, so that text and ids both change."""
    from dataclasses import replace

    rewriting = replace(
        tiny_tokenizer,
        chat_template="{% for m in messages %}{{ m.role }}:{{ '<old>' if not loop.last }}"
        "{{ m.content }};{% endfor %}assistant:",
    )
    assert not next_turn_extends(ChatTemplateRenderer(rewriting), rewriting)


def test_a_judge_that_the_algorithm_does_not_need_is_neither_built_nor_tried(
    monkeypatch: pytest.MonkeyPatch, tiny_tokenizer: ModelTokenizer
) -> None:
    engine = FakeEngine(lambda request, id_: -1.0)
    engine.close = lambda: asyncio.sleep(0)  # type: ignore[attr-defined]
    config = Config(
        judge=CallableJudgeConfig(target="no_such_module:score"),
        hints=ExtractiveHintsConfig(),
        trainer=TrainerConfig(algorithm="opd"),
    )
    setting = JudgeSetting(config.judge, "default", engine, tiny_tokenizer, "tiny")
    monkeypatch.setattr(checkup_system, "connect_engine", lambda _config: engine)
    monkeypatch.setattr(checkup_system, "judge_setting", lambda _config, _engine: setting)
    found = {finding.name: finding for finding in checkup_system.engine_and_judge(config)}
    assert {finding.state for finding in found.values()} == {State.OK}
    assert "not asked" in found["judge"].text
    asked = config.model_copy(update={"trainer": TrainerConfig(algorithm="combine")})
    found = {finding.name: finding for finding in checkup_system.engine_and_judge(asked)}
    assert found["judge"].state is State.FAIL


def test_hints_of_a_judge_that_casts_no_votes_are_told_as_a_fault(
    monkeypatch: pytest.MonkeyPatch, tiny_tokenizer: ModelTokenizer
) -> None:
    engine = FakeEngine(lambda request, id_: -1.0)
    engine.close = lambda: asyncio.sleep(0)  # type: ignore[attr-defined]
    config = Config(hints=JudgeHintsConfig(), trainer=TrainerConfig(algorithm="combine"))
    setting = JudgeSetting(config.judge, "default", engine, tiny_tokenizer, "tiny")
    monkeypatch.setattr(checkup_system, "connect_engine", lambda _config: engine)
    monkeypatch.setattr(checkup_system, "judge_setting", lambda _config, _engine: setting)
    found = {finding.name: finding for finding in checkup_system.engine_and_judge(config)}
    for name in ("judge", "hints"):
        assert found[name].state is State.FAIL
        assert "judge.kind = 'likelihood'" in (found[name].remedy or "")


@pytest.mark.parametrize("hints", [JudgeHintsConfig(), LlmHintsConfig()])
def test_what_needs_the_engine_is_not_tried_without_it(
    monkeypatch: pytest.MonkeyPatch, tiny_tokenizer: ModelTokenizer, hints: HintsConfig
) -> None:
    engine = FakeEngine(lambda request, id_: -1.0)
    engine.close = lambda: asyncio.sleep(0)  # type: ignore[attr-defined]
    engine.info = nobody_there  # type: ignore[attr-defined]
    config = Config(judge=LlmJudgeConfig(), hints=hints, trainer=TrainerConfig(algorithm="combine"))
    setting = JudgeSetting(config.judge, "default", engine, tiny_tokenizer, "tiny")
    monkeypatch.setattr(checkup_system, "connect_engine", lambda _config: engine)
    monkeypatch.setattr(checkup_system, "judge_setting", lambda _config, _engine: setting)
    found = {finding.name: finding for finding in checkup_system.engine_and_judge(config)}
    assert {finding.state for finding in found.values()} == {State.WARN}
    assert "not tried" in found["hints"].text


async def nobody_there() -> EngineInfo:
    raise EngineUnavailable("nobody listens")


def test_a_judge_that_is_unsure_of_praise_is_told_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tiny_tokenizer: ModelTokenizer
) -> None:
    engine = FakeEngine(lambda request, id_: -1.0)
    engine.close = lambda: asyncio.sleep(0)  # type: ignore[attr-defined]
    module = types.ModuleType("unsure_judge")
    module.score = lambda context, answer, next_state: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "unsure_judge", module)
    config = Config(judge=CallableJudgeConfig(target="unsure_judge:score"))
    setting = JudgeSetting(config.judge, "default", engine, tiny_tokenizer, "tiny")
    monkeypatch.setattr(checkup_system, "connect_engine", lambda _config: engine)
    monkeypatch.setattr(checkup_system, "judge_setting", lambda _config, _engine: setting)
    found = {one.name: one for one in checkup_system.engine_and_judge(config)}
    assert found["judge"].state is State.FAIL
    assert "judge_unsure" in found["judge"].text
    assert "another judge or model" in found["judge"].remedy


@pytest.mark.parametrize(
    ("trainer", "copies"),
    [
        ({"algorithm": "binary"}, 0),
        ({"algorithm": "binary", "loss": {"kl_coefficient": 0.1}, "average": 0.5}, 2),
        ({"algorithm": "opd"}, 1),  # the start weights, as the teacher
        ({"algorithm": "combine", "loss": {"kl_coefficient": 0.1}}, 1),  # one set for both
        ({"algorithm": "combine", "teacher": {"weights": "ema"}, "average": 0.5}, 2),
        ({"algorithm": "binary", "teacher": {"weights": "ema"}}, 0),  # nobody is taught
    ],
    ids=str,
)
def test_weights_that_are_held_beside_those_in_training_are_counted(
    trainer: dict[str, Any], copies: int
) -> None:
    assert checkup_machine._copies(TrainerConfig.model_validate(trainer)) == copies
