"""A teacher on an engine says what the same weights say in the trainer, or nothing at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rejoinder.config import Config
from rejoinder.engine.base import EngineInfo, ScoreRequest, ScoreResult
from rejoinder.engine.torch_engine.engine import TorchEngine
from rejoinder.errors import (
    ConfigError,
    EngineBusy,
    EngineTimeout,
    EngineUnavailable,
    InvalidRequest,
    UnknownVersion,
)
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.trainer.base import SignalledTurn, TeacherAway, TeacherFailed
from rejoinder.trainer.batching import pack
from rejoinder.trainer.engine_calls import EngineCaller
from rejoinder.trainer.torch_backend import TorchBackend
from tiny_model import DEVICE, save_tiny_model, source, tiny_config

from .test_teacher import HINT, OTHER, hinted
from .test_torch_backend import gradients
from .tiny import load_plain, sample_turn, signalled

Make = Callable[..., Config]
KINDS: list[dict[str, Any]] = [
    {"kind": "topk"}, {"kind": "token"}, {"kind": "tail", "top": 9}, {"kind": "jsd", "top": 7},
    {"kind": "jsd", "alpha": 0.0, "top": 100},
]  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: ModelTokenizer) -> Path:
    """A model with a tokenizer."""
    return save_tiny_model(tmp_path_factory.mktemp("served"), tiny_tokenizer)


@pytest.fixture(scope="module")
def engine(served: Path) -> Iterator[TorchEngine]:
    """The engine of this process, with the policy's start weights as version 0."""
    engine = TorchEngine(served, tiny_config(), torch.float32, DEVICE)
    asyncio.run(engine.load(source(served), live=True))
    yield engine
    asyncio.run(engine.close())


@pytest.fixture(scope="module")
def turns(served: Path) -> list[dict[str, Any]]:
    model = load_plain(served)
    return [
        sample_turn(
            model, 1.0, prompt=tuple(range(1, 4 + seed)), tokens=3 + seed,
            temperature=(0.7, 1.0)[seed % 2], seed=seed,
        )
        for seed in range(4)
    ]  # fmt: skip


@pytest.fixture
def start(make_config: Make, served: Path) -> Iterator[Callable[..., TorchBackend]]:
    """Return what starts a backend whose teacher is on an engine."""
    callers: list[EngineCaller] = []

    def start(engine: Any, distil: dict[str, Any] | None = None, **trainer: Any) -> TorchBackend:
        distil = distil or {"kind": "topk"}
        callers.append(EngineCaller(engine))
        config = make_config(
            **{"teacher": {"weights": "engine"}, "loss": {"distil": distil}, **trainer}
        )
        model = config.model.model_copy(update={"path": str(served)})
        backend = TorchBackend(
            config.model_copy(update={"model": model}),
            f"distil_{distil['kind']}",
            needs_teacher=True,
            engine=callers[-1],
        )
        backend.load(None, None)
        return backend

    yield start
    for caller in callers:
        caller._runner.close()  # the engine lives on


def step_of(turns: list[dict[str, Any]]) -> list[SignalledTurn]:
    """Two turns with several hints, one with one hint and a mask, one without any."""
    masked = hinted(turns[2], 4, [OTHER])
    mask = np.array([True, False, True, True, False])
    return [
        hinted(turns[0], 4, [HINT, OTHER]),
        signalled(turns[1], 4),
        replace(masked, signal=replace(masked.signal, mask=mask)),
        hinted(turns[3], 4, [OTHER, HINT, [70, 80]]),
    ]


@pytest.mark.parametrize("distil", KINDS, ids=lambda distil: "-".join(map(str, distil.values())))
@pytest.mark.parametrize("choice", ["overlap", "token_overlap", "longest"])
def test_it_says_what_the_frozen_teacher_of_the_trainer_says(
    start: Any,
    engine: TorchEngine,
    turns: list[dict[str, Any]],
    distil: dict[str, Any],
    choice: str,
) -> None:
    step = step_of(turns)
    told = {}
    for weights in ("frozen", "engine"):
        backend = start(engine, distil, teacher={"weights": weights, "choice": choice})
        model, _ = backend._loaded()
        batch = pack(step, DEVICE)
        with torch.no_grad():
            told[weights] = backend._taught(model, model.hidden(batch), batch, step)
    has_hint = batch.hint_weights != 0
    assert told["engine"][1].isfinite().all()
    (ids, here), (asked, there) = (
        [part.gather(-1, found[0].argsort(-1))[has_hint] for part in found]
        for found in (told["frozen"], told["engine"])
    )  # by id: of tokens that are as likely, either may come first
    assert torch.equal(ids, asked)
    assert float((here - there).abs().max()) < 1e-4


def test_a_step_has_the_gradient_of_the_frozen_teacher(
    start: Any, engine: TorchEngine, turns: list[dict[str, Any]]
) -> None:
    step = step_of(turns)
    local = gradients(start(engine, teacher={"weights": "frozen"}), step)
    for name, grad in gradients(start(engine), step).items():
        torch.testing.assert_close(grad, local[name], atol=2e-6, rtol=1e-3)


@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 8.0}], ids=["full", "lora"])
def test_an_engine_that_says_something_else_with_the_same_weights_is_refused(
    start: Any, engine: TorchEngine, tmp_path: Path, tiny_tokenizer: ModelTokenizer, lora: Any
) -> None:
    start(engine, lora=lora)
    other = TorchEngine(
        save_tiny_model(tmp_path / "other", tiny_tokenizer, seed=1), tiny_config(),
        torch.float32, DEVICE,
    )  # fmt: skip
    asyncio.run(other.load(source(tmp_path / "other"), live=True))
    try:
        with pytest.raises(ConfigError, match="teacher and student differ by"):
            start(other, lora=lora)
        # Named as another engine it may be another model: it teaches what that one says.
        elsewhere = {"weights": "engine", "engine": {"url": "http://127.0.0.1:9"}}
        start(other, lora=lora, teacher=elsewhere)
    finally:
        asyncio.run(other.close())


class Stub:
    """Passes calls on to an engine, and changes what it is told to."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine = engine
        self.info_is: dict[str, Any] = {}
        self.error: Exception | None = None
        self.change: Callable[[ScoreRequest, ScoreResult], ScoreResult] = lambda _, found: found
        self.asked: list[ScoreRequest] = []

    async def info(self) -> EngineInfo:
        if self.error is not None:
            raise self.error
        return replace(await self.engine.info(), **self.info_is)

    async def score(self, request: ScoreRequest) -> ScoreResult:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        return self.change(request, await self.engine.score(request))


@pytest.fixture
def stub(engine: TorchEngine) -> Stub:
    return Stub(engine)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"tokenizer_hash": "other"}, "another tokenizer than the policy"),
        ({"capabilities": ["score"]}, r"lacks \['candidates'\]"),
        ({"loaded": {"default": [1]}}, "no version 0 of a policy 'default'"),
        ({"loaded": {"other": [0]}}, r"it has \{'other': \[0\]\}"),
    ],
)
def test_an_engine_that_cannot_teach_is_refused_at_the_start(
    start: Any, stub: Stub, changed: dict[str, Any], named: str
) -> None:
    stub.info_is = changed
    with pytest.raises(ConfigError, match=named):
        start(stub)


def test_a_loss_that_needs_no_candidates_is_taught_without_that_capability(
    start: Any, stub: Stub
) -> None:
    stub.info_is = {"capabilities": ["score"]}
    start(stub, {"kind": "tail"})


def test_an_engine_that_is_not_there_at_the_start_is_waited_for(start: Any, stub: Stub) -> None:
    stub.error = EngineUnavailable("cannot be reached")
    with pytest.raises(TeacherAway, match="cannot be reached"):
        start(stub)


@pytest.mark.parametrize("error", [EngineUnavailable, EngineBusy, EngineTimeout, UnknownVersion])
def test_while_it_does_not_answer_no_gradient_is_made_up(
    start: Any, stub: Stub, turns: list[dict[str, Any]], error: type[Exception]
) -> None:
    backend = start(stub)
    stub.error = error("not now")
    with pytest.raises(TeacherAway, match="not now"):
        list(backend.accumulate(step_of(turns)))
    stub.error = None
    assert gradients(backend, step_of(turns))


def test_an_engine_that_is_away_is_not_asked_for_the_rest(
    start: Any, stub: Stub, turns: list[dict[str, Any]]
) -> None:
    backend = start(stub)
    stub.asked.clear()
    stub.error = EngineTimeout("no answer within 60 s")
    with pytest.raises(TeacherAway):
        list(backend.accumulate([hinted(turns[0], 4, [HINT, OTHER]) for _ in range(6)]))
    assert len(stub.asked) <= 4


def cut_top(request: ScoreRequest, found: ScoreResult) -> ScoreResult:
    return replace(found, top=[row[:5] for row in found.top])


def no_candidates(request: ScoreRequest, found: ScoreResult) -> ScoreResult:
    return replace(found, candidates=[])


def nan(request: ScoreRequest, found: ScoreResult) -> ScoreResult:
    return replace(found, candidates=[[float("nan") for _ in row] for row in found.candidates])


def larger_vocabulary(request: ScoreRequest, found: ScoreResult) -> ScoreResult:
    return replace(found, top=[[*row[:-1], (1_000_000, -9.0)] for row in found.top])


def probabilities(request: ScoreRequest, found: ScoreResult) -> ScoreResult:
    return replace(found, candidates=[[0.5 for _ in row] for row in found.candidates])


def twice(request: ScoreRequest, found: ScoreResult) -> ScoreResult:
    return replace(found, top=[[*row[:-1], row[0]] for row in found.top])


@pytest.mark.parametrize(
    ("kind", "change", "named"),
    [
        ("tail", cut_top, "did not give its 50 most likely"),
        ("tail", larger_vocabulary, "tokens likely that the policy does not have"),
        ("topk", no_candidates, "scored other tokens"),
        ("topk", nan, "not finite"),
        ("topk", probabilities, "no log-probabilities"),
        ("tail", twice, "a token twice"),
    ],
)
def test_what_it_leaves_out_is_named_with_its_turns_and_never_replaced(
    start: Any, stub: Stub, turns: list[dict[str, Any]], kind: str, change: Any, named: str
) -> None:
    backend, step = start(stub, {"kind": kind}), step_of(turns)
    answer = step[2].answer_ids
    stub.change = lambda asked, found: (
        change(asked, found) if asked.ids[asked.start :] == answer else found
    )
    with pytest.raises(TeacherFailed, match=named) as failure:
        list(backend.accumulate(step))
    (turn,) = failure.value.turns
    assert turn is step[2]


def test_a_refused_turn_is_a_failed_one(
    start: Any, stub: Stub, turns: list[dict[str, Any]]
) -> None:
    backend = start(stub)
    stub.error = InvalidRequest("ids must be in 0..9")
    with pytest.raises(TeacherFailed, match="ids must be in"):
        list(backend.accumulate(step_of(turns)))


def test_people_and_judges_go_first_and_masked_tokens_are_not_asked_for(
    start: Any, stub: Stub, turns: list[dict[str, Any]]
) -> None:
    backend, step = start(stub, teacher={"weights": "engine", "choice": "longest"}), step_of(turns)
    stub.asked.clear()
    list(backend.accumulate(step))
    assert {request.priority for request in stub.asked} == {15}
    assert len(stub.asked) == 3
    assert {request.top_k for request in stub.asked} == {0}
    (masked,) = [one for one in stub.asked if one.ids[one.start :] == step[2].answer_ids]
    assert [len(row) for row in masked.candidates or ()] == [4, 0, 4, 4, 0]
