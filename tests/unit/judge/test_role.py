"""The judge role: who is built, who is asked, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from judge_fakes import FakeEngine
from rejoinder.algorithms import build_algorithm
from rejoinder.config import (
    Config,
    ExtractiveHintsConfig,
    JudgeHintsConfig,
    LlmHintsConfig,
    LlmJudgeConfig,
    TrainerConfig,
)
from rejoinder.errors import ConfigError
from rejoinder.judge import role
from rejoinder.judge.one_pass import OnePassJudge

ELSEWHERE = LlmJudgeConfig(
    base_url="https://judge.example/v1", model="m", allow_external=True, votes=5, timeout_s=10
)


def config_of(algorithm: str, **sections: Any) -> Config:
    return Config(
        **{"judge": ELSEWHERE, "hints": ExtractiveHintsConfig(), **sections},
        trainer=TrainerConfig(algorithm=algorithm),
    )


@pytest.fixture
def loop_of(monkeypatch: pytest.MonkeyPatch, tiny_tokenizer) -> Callable[..., Any]:
    """Return what runs the role up to its loop, and gives what the loop was made of."""

    def run(config: Config) -> Any:
        made: list[Any] = []

        class Loop:
            def __init__(self, _journal, judge, _rule, limits, external, hints) -> None:
                self.judge, self.limits, self.external, self.hints = judge, limits, external, hints
                made.append(self)

            async def run(self, _stop: asyncio.Event) -> None: ...

        engine = FakeEngine(lambda request, id_: -1.0)
        engine.close = lambda: asyncio.sleep(0)  # type: ignore[attr-defined]
        monkeypatch.setattr(role, "JudgeLoop", Loop)
        monkeypatch.setattr(role, "connect_engine", lambda _config: engine)
        monkeypatch.setattr(role, "load_tokenizer", lambda _path: tiny_tokenizer)
        monkeypatch.setattr(role, "resolve_model", lambda path: path)
        asyncio.run(role._run(config, SimpleNamespace()))  # type: ignore[arg-type]
        return made[0]

    return run


def test_where_hints_alone_teach_no_judge_is_built_and_nothing_leaves_for_it(loop_of) -> None:
    loop = loop_of(config_of("opd"))
    assert loop.judge is None
    assert loop.hints is not None
    assert loop.external == []


def test_a_judge_that_cannot_work_stops_only_those_who_would_ask_it(loop_of) -> None:
    broken = ELSEWHERE.model_copy(update={"allow_external": False})
    assert loop_of(config_of("opd", judge=broken)).judge is None
    with pytest.raises(ConfigError, match="allow_external"):
        loop_of(config_of("combine", judge=broken))


def test_hints_of_the_judge_s_own_votes_make_one_judge_that_is_both(
    loop_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnePassJudge, "check", lambda _judge: asyncio.sleep(0))
    loop = loop_of(config_of("combine", judge=LlmJudgeConfig(), hints=JudgeHintsConfig()))
    assert isinstance(loop.judge, OnePassJudge)
    assert loop.hints is loop.judge


@pytest.mark.parametrize(("algorithm", "seconds"), [("combine", 50.0), ("opd", 10.0)])
def test_a_judge_that_is_not_asked_takes_no_time(algorithm: str, seconds: float) -> None:
    config = config_of(algorithm)
    assert role.judging_limits(config, build_algorithm(config.trainer)).deadline_s == seconds


def test_the_time_of_hint_calls_counts_without_a_judge_too() -> None:
    config = config_of("opd", hints=LlmHintsConfig(votes=3, timeout_s=20, concurrency=4))
    assert role.judging_limits(config, build_algorithm(config.trainer)).deadline_s >= 60


@dataclass
class ComparedByValue:
    """A judge of another package, as a plain dataclass, which has no hash."""

    fingerprint: str = "theirs"

    async def check(self) -> None: ...

    async def close(self) -> None: ...


def test_a_judge_of_another_package_may_be_a_dataclass(
    loop_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = lambda *_, **__: (ComparedByValue(), None)  # noqa: E731
    monkeypatch.setattr(role, "build_judges", made)
    assert loop_of(config_of("combine")).judge == ComparedByValue()
