"""Evaluation at intervals: prompts, scorer, and what becomes of failures."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.config import EvaluationConfig
from rejoinder.engine.base import GenerateRequest, TokenChunk, VersionSource
from rejoinder.errors import ConfigError, EngineError, JournalError
from rejoinder.journal.records import PolicyVersion
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.trainer.evaluation import Evaluator, load_evaluation_set
from rejoinder.types import FinishReason, Json, VersionState, WeightsKind

SCORER = """
def length(messages, answer):
    return len(answer) / len(messages)

def broken(messages, answer):
    raise RuntimeError("no scorer today")

def undefined(messages, answer):
    return float("nan")

not_callable = 3
"""


class FakeEngine:
    """Answers with the version's number, as often as there are prompts."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self.tokenizer = tokenizer
        self.calls: list[str] = []
        self.requests: list[GenerateRequest] = []
        self.gate = threading.Event()
        self.gate.set()
        self.error: EngineError | None = None

    async def load(self, source: VersionSource, *, live: bool) -> None:
        assert not live
        self.calls.append(f"load {source.version}")
        while not self.gate.is_set():
            self.gate.wait(0.01)

    async def unload(self, policy: str, version: int) -> None:
        self.calls.append(f"unload {version}")

    async def close(self) -> None:
        self.calls.append("close")

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        assert request.version is not None
        for index, id_ in enumerate(ids := self.tokenizer.encode("x" * request.version)):
            done = FinishReason.STOP if index == len(ids) - 1 else None
            yield TokenChunk([id_], [-0.1], request.version, finish_reason=done)


class FakeJournal:
    def __init__(self) -> None:
        self.evaluations: list[tuple[int, str, float, Json]] = []
        self.counts: list[tuple[str, str]] = []
        self.error: Exception | None = None

    def add_evaluation(
        self, policy: str, version: int, name: str, score: float, detail: Json
    ) -> None:
        if self.error is not None:
            raise self.error
        self.evaluations.append((version, name, score, detail))

    def count(self, role: str, name: str, reason: str, amount: int = 1) -> None:
        self.counts.append((name, reason))


def version(number: int) -> PolicyVersion:
    return PolicyVersion(
        policy="default",
        version=number,
        uri=f"file:///v{number}",
        kind=WeightsKind.FULL,
        base_uri="file:///base",
        parent=None,
        lineage_id="l",
        step=number or None,
        state=VersionState.LIVE,
        created_at=0.0,
    )


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    (tmp_path / "my_scorer.py").write_text(SCORER)
    monkeypatch.syspath_prepend(str(tmp_path))
    prompts = tmp_path / "everyday.jsonl"
    one = {"messages": [{"role": "user", "content": "hello"}]}
    two = {"messages": [{"role": "system", "content": None}, {"role": "user", "content": "hi"}]}
    prompts.write_text(f"{json.dumps(one)}\n\n{json.dumps(two)}\n")

    def make(**changes: Any) -> EvaluationConfig:
        fields = {"every": 2, "prompts": str(prompts), "scorer": "my_scorer:length"}
        return EvaluationConfig(**(fields | changes))

    yield make
    sys.modules.pop("my_scorer", None)


class Bench:
    """An evaluator with a fake engine and a fake journal."""

    def __init__(self, config: EvaluationConfig, tokenizer: ModelTokenizer) -> None:
        self.engine = FakeEngine(tokenizer)
        self.journal = FakeJournal()
        self.errors: list[str | None] = []
        self.evaluator = Evaluator(
            config,
            lambda: self.engine,  # type: ignore[arg-type, return-value]
            ChatTemplateRenderer(tokenizer),
            tokenizer,
            self.journal,
            self.errors.append,
        )


def test_a_due_version_is_scored_and_kept_with_its_number(
    settings: Callable[..., Any], tiny_tokenizer: ModelTokenizer
) -> None:
    bench = Bench(settings(), tiny_tokenizer)
    bench.evaluator.submit(version(4))
    bench.evaluator.close()
    ((number, name, score, detail),) = bench.journal.evaluations
    assert (number, name) == (4, "everyday")
    assert detail["scores"] == [4.0, 2.0]  # four letters for one message, and for two
    assert score == 3.0
    assert bench.errors == [None]
    assert bench.engine.calls == ["load 4", "unload 4", "close"]
    for request in bench.engine.requests:
        assert (request.version, request.priority) == (4, 20)
        assert request.sampling.temperature == 0.0
    asked = [tiny_tokenizer.decode(one.prompt_ids) for one in bench.engine.requests]
    assert "hello" in asked[0]


def test_only_every_nth_step_is_due(
    settings: Callable[..., Any], tiny_tokenizer: ModelTokenizer
) -> None:
    bench = Bench(settings(every=3), tiny_tokenizer)
    for number in (0, 1, 2):
        bench.evaluator.submit(version(number))
    bench.evaluator.close()
    assert bench.engine.calls[:1] == ["load 0"]
    assert "load 1" not in bench.engine.calls


def test_a_waiting_version_is_replaced_by_a_newer_one_and_counted(
    settings: Callable[..., Any], tiny_tokenizer: ModelTokenizer
) -> None:
    bench = Bench(settings(every=1), tiny_tokenizer)
    bench.engine.gate.clear()
    bench.evaluator.submit(version(1))
    while not bench.engine.calls:
        threading.Event().wait(0.005)
    for number in (2, 3):
        bench.evaluator.submit(version(number))
    bench.engine.gate.set()
    bench.evaluator._newest.result(10)  # type: ignore[union-attr]
    bench.evaluator.close()
    assert [number for number, *_ in bench.journal.evaluations] == [1, 3]
    assert bench.journal.counts == [("evaluations", "replaced_by_newer")]


@pytest.mark.parametrize("fault", ["engine", "broken", "undefined", "journal"])
def test_a_failure_is_counted_and_training_goes_on(
    settings: Callable[..., Any], tiny_tokenizer: ModelTokenizer, fault: str
) -> None:
    by_scorer = fault in ("broken", "undefined")
    config = settings(scorer=f"my_scorer:{fault}") if by_scorer else settings()
    bench = Bench(config, tiny_tokenizer)
    if fault == "engine":
        bench.engine.error = EngineError("no engine today")
    if fault == "journal":
        bench.journal.error = JournalError("no journal today")
    bench.evaluator.submit(version(2))
    bench.evaluator.close()
    assert bench.journal.evaluations == []  # never a mean over what is missing
    assert bench.journal.counts == [("evaluations", "failed")]
    assert ("not a finite" if fault == "undefined" else "today") in (bench.errors[0] or "")
    assert bench.engine.calls[-2:] == ["unload 2", "close"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scorer": "my_scorer:missing"}, "cannot import"),
        ({"scorer": "no_such_module:length"}, "cannot import"),
        ({"scorer": "my_scorer:not_callable"}, "not callable"),
        ({"prompts": "/no/such/file"}, "cannot read"),
    ],
)
def test_what_cannot_work_is_refused_at_start(
    settings: Callable[..., Any], changes: Json, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_evaluation_set(settings(**changes))


@pytest.mark.parametrize(
    "line", ["{", '{"messages": []}', '{"text": "hello"}', "[]", "[" * 200_000]
)
def test_a_bad_prompt_is_named_by_its_line(
    settings: Callable[..., Any], tmp_path: Path, line: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f'{{"messages": [{{"role": "user", "content": "x"}}]}}\n{line}\n')
    with pytest.raises(ConfigError, match="line 2"):
        load_evaluation_set(settings(prompts=str(path)))
