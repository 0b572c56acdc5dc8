"""The frozen engine scores as transformers does, whatever is scored beside it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.unit.trainer.tiny import load_plain

from rejoinder.engine.base import GenerateRequest, ScoreRequest, ScoreResult
from rejoinder.errors import ContextLengthExceeded, InvalidRequest, UnknownVersion
from rejoinder.evaluation.pack import frozen
from rejoinder.evaluation.pack.frozen import FrozenEngine
from rejoinder.evaluation.pack.stacked import StackedModel
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Sampling

from .kit import CONTEXT, save_chat_model

WHOLE = ScoreRequest("one", [5, 9, 3, 7, 200], "default")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: ModelTokenizer) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("model"), tiny_tokenizer)


@pytest.fixture(scope="module")
def engine(path: Path, tiny_tokenizer: ModelTokenizer) -> FrozenEngine:
    return FrozenEngine(StackedModel(path, 1, torch.device("cpu")), tiny_tokenizer, "default")


async def scored(engine: FrozenEngine, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
    asked = [asyncio.create_task(engine.score(request)) for request in requests]
    await asyncio.sleep(0)
    assert engine.waiting == len(asked)
    engine.flush()
    assert not engine.waiting
    return await asyncio.gather(*asked)


def expected(path: Path, request: ScoreRequest) -> torch.Tensor:
    """[len(ids), V] log-probabilities of what comes after each id."""
    with torch.no_grad():
        logits = load_plain(path)(torch.tensor([request.ids])).logits[0]
    return (logits / request.temperature).log_softmax(-1)


async def test_scores_are_those_of_transformers(
    path: Path, engine: FrozenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "_WIDE", 24)  # several passes
    some = replace(WHOLE, start=2, temperature=0.7)
    words = ScoreRequest(
        "words", [8, 2, 100], "default", 0, start=2, stop=4, candidates=[[], [4, 9, 4]]
    )
    longer = ScoreRequest("longer", [3] * 20, "default", start=19)
    results = await scored(engine, [WHOLE, words, longer, some])
    for request, result in zip((WHOLE, words, longer, some), results, strict=True):
        rows = expected(path, request)[request.start - 1 : -1]
        own = torch.tensor(request.ids[request.start :])
        known = rows.gather(-1, own[:, None])[:, 0]
        assert result.logprobs == pytest.approx(known.tolist(), abs=1e-5)
        assert result.version == 0
    last = expected(path, words)[-1]
    assert results[1].candidates[0] == []
    assert results[1].candidates[1] == pytest.approx(last[[4, 9, 4]].tolist(), abs=1e-5)


@pytest.mark.parametrize("chunk", [1, 2, 3])
async def test_scores_do_not_depend_on_where_chunks_end(
    engine: FrozenEngine, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    requests = [
        replace(WHOLE, start=2, stop=4),
        ScoreRequest("next", [8, 2], "default", 0, start=2, stop=3, candidates=[[4, 9, 4]]),
        ScoreRequest("some", [8, 2, 100], "default", 0, start=1, candidates=[[7], [1, 2]]),
        WHOLE,
    ]
    whole = await scored(engine, requests)
    monkeypatch.setattr(frozen, "_CHUNK", chunk)
    parts = await scored(engine, requests)
    for one, other in zip(whole, parts, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
        assert len(one.candidates) == len(other.candidates)
        for mine, its in zip(one.candidates, other.candidates, strict=True):
            assert mine == pytest.approx(its, abs=1e-5)
    assert [len(one.logprobs) for one in whole] == [2, 0, 2, 4]


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"version": 1}, UnknownVersion),
        ({"policy": "another"}, UnknownVersion),
        ({"top_k": 3}, InvalidRequest),
        ({"start": 0}, InvalidRequest),
        ({"ids": [1] * (CONTEXT + 1)}, ContextLengthExceeded),
    ],
)
async def test_what_cannot_be_scored_is_refused_at_once(
    engine: FrozenEngine, changed: dict[str, object], refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        await engine.score(replace(WHOLE, **changed))  # type: ignore[arg-type]
    assert not engine.waiting


async def test_whoever_gave_up_is_no_harm_to_others(engine: FrozenEngine) -> None:
    gone, stays = (asyncio.create_task(engine.score(WHOLE)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    engine.flush()
    assert all(map(math.isfinite, (await stays).logprobs))


async def test_it_says_what_it_can_do_and_answers_nobody(engine: FrozenEngine) -> None:
    info = await engine.info()
    assert {"score", "candidates"} <= set(info.capabilities)
    assert info.loaded == {"default": [0]}
    with pytest.raises(InvalidRequest):
        engine.generate(GenerateRequest("one", [1], Sampling(4), "default"))
