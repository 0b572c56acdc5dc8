"""Constrained answers beside others: nobody waits for a mask, and updates go on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rejoinder.engine.base import Constraint, Form, GenerateRequest
from rejoinder.engine.torch_engine.engine import TorchEngine
from rejoinder.engine.torch_engine.guide import Guide
from rejoinder.errors import ConstraintRefused, EngineError, EngineTimeout
from rejoinder.models.loading import load_model
from rejoinder.types import FinishReason
from tiny_model import (
    POLICY,
    Answer,
    answer,
    request,
    source,
    torch_engine,
    until,
    until_idle,
)

PROMPT = list(range(40, 60))
WORDS = {"type": "string", "pattern": "^(ab|cd){20}$"}


def held_to(schema: object, **settings: object) -> GenerateRequest:
    asked = request(PROMPT, **{"max_tokens": 200, **settings})  # type: ignore[arg-type]
    return replace(asked, constraint=Constraint([Form(json.dumps(schema))]))


@pytest.fixture
async def engine(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0]) as made:
        yield made


@pytest.fixture
def slow_masks(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Masks after the first one wait for this event."""
    gate = threading.Event()
    go_on = Guide._go_on

    def waiting(guide: Guide, id_: int):
        gate.wait(30)
        return go_on(guide, id_)

    monkeypatch.setattr(Guide, "_go_on", waiting)
    yield gate
    gate.set()


async def test_others_sample_as_if_they_were_alone(engine: TorchEngine, tiny_tokenizer):
    free = request(PROMPT, seed=7, max_tokens=40)
    alone = await answer(engine, free)
    bound = [held_to(WORDS, seed=seed) for seed in range(2)]
    *held, beside = await asyncio.gather(*[answer(engine, one) for one in (*bound, free)])
    assert beside.ids == alone.ids
    assert beside.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
    for found in held:
        said = json.loads(tiny_tokenizer.decode(found.ids))
        assert (len(said), said.replace("ab", "").replace("cd", "")) == (40, "")


async def test_logprobs_are_those_of_the_distribution_that_was_drawn_from(
    engine: TorchEngine, tiny_models: list[Path], tiny_tokenizer
):
    """Of "ab" and "cd" the first letter is free and the second one certain."""
    found = await answer(engine, held_to({"enum": ["ab", "cd"]}, seed=3, temperature=0.7))
    model = load_model(tiny_models[0], torch.float32, torch.device("cpu"))
    quote, first, second, closing, end = found.ids
    assert quote == closing == tiny_tokenizer.encode('"')[0]
    with torch.inference_mode():
        logits = model(torch.tensor([[*PROMPT, quote]])).logits[0, -1] / 0.7
    letters = [tiny_tokenizer.encode(letter)[0] for letter in "ac"]
    expected = logits[letters].log_softmax(-1)[letters.index(first)]
    assert found.logprobs[1] == pytest.approx(float(expected), abs=1e-4)
    assert [found.logprobs[n] for n in (0, 2, 3, 4)] == pytest.approx([0.0] * 4, abs=1e-6)
    assert end in tiny_tokenizer.eos_ids
    assert second == tiny_tokenizer.encode("b" if first == letters[0] else "d")[0]


async def test_nobody_waits_for_anothers_mask(engine: TorchEngine, slow_masks, tiny_tokenizer):
    held = Answer()
    asked = held_to({"const": "abc"}, seed=1)
    reading = asyncio.create_task(answer(engine, asked, held))
    await until(lambda: len(held.ids) == 1)
    others = [request(PROMPT, seed=seed, max_tokens=30) for seed in range(3)]
    await asyncio.gather(*[answer(engine, one) for one in others])
    assert len(held.ids) == 1
    slow_masks.set()
    assert json.loads(tiny_tokenizer.decode((await reading).ids)) == "abc"


async def test_an_answer_that_was_put_off_is_as_if_it_had_not_been(
    engine: TorchEngine, slow_masks, tiny_models: list[Path]
):
    asked, held = held_to(WORDS, seed=5, temperature=2.0), Answer()
    reading = asyncio.create_task(answer(engine, asked, held))
    await until(lambda: len(held.ids) == 1)
    await answer(engine, request(PROMPT, max_tokens=5))  # steps go on meanwhile
    slow_masks.set()
    late = await reading
    async with torch_engine(tiny_models[0]) as another:
        prompt = await answer(another, asked)
    assert late.ids == prompt.ids
    assert late.logprobs == pytest.approx(prompt.logprobs, abs=1e-4)


async def test_an_update_while_an_answer_is_put_off_samples_the_rest_of_it(
    engine: TorchEngine, slow_masks, tiny_models: list[Path], tiny_tokenizer
):
    held = Answer()
    reading = asyncio.create_task(answer(engine, held_to({"const": "abc"}), held))
    await until(lambda: len(held.ids) == 1)
    await engine.load(source(tiny_models[1], 1), live=True)
    slow_masks.set()
    await reading
    assert held.versions == [0] + [1] * 5
    assert json.loads(tiny_tokenizer.decode(held.ids)) == "abc"


async def test_a_mask_that_never_comes_ends_with_the_requests_time(
    engine: TorchEngine, slow_masks, up_after_a_token
):
    held = Answer()
    asked = held_to({"const": "abc"}, deadline_s=1000.0)
    with pytest.raises(EngineTimeout):
        await answer(engine, asked, held)
    assert len(held.ids) == 1
    assert (await answer(engine, request(PROMPT))).finish_reason is not None


async def test_a_client_that_leaves_while_its_mask_is_computed_frees_its_place(
    engine: TorchEngine, slow_masks
):
    stream = engine.generate(held_to({"const": "abc"}))
    await anext(stream)
    await stream.aclose()
    await until_idle(engine)


async def test_a_schema_that_turns_out_too_dear_fails_its_own_answer_only(
    engine: TorchEngine, monkeypatch
):
    go_on = Guide._go_on

    def refusing(guide: Guide, id_: int):
        go_on(guide, id_)
        raise ConstraintRefused("too complex")

    monkeypatch.setattr(Guide, "_go_on", refusing)
    held = Answer()
    free = asyncio.create_task(answer(engine, request(PROMPT, seed=1, max_tokens=20)))
    with pytest.raises(ConstraintRefused, match="too complex"):
        await answer(engine, held_to({"const": "abc"}), held)
    assert len(held.ids) == 1
    assert (await free).finish_reason is not None
    assert (await engine.info()).last_error is None


class Panic(BaseException):
    """What a panic of a library in Rust is: no ``Exception``."""


@pytest.mark.parametrize("fault", [Panic, RuntimeError])
async def test_a_mask_that_fails_ends_its_own_answer_and_not_the_engine(
    engine: TorchEngine, monkeypatch, fault: type[BaseException]
):
    mask = Guide._mask

    def failing(guide: Guide):
        if guide._spent_s:
            raise fault("internal")
        return mask(guide)

    monkeypatch.setattr(Guide, "_mask", failing)
    free = asyncio.create_task(answer(engine, request(PROMPT, seed=1, max_tokens=20)))
    with pytest.raises(EngineError, match="internal"):
        await answer(engine, held_to({"const": "abc"}))
    assert (await free).finish_reason is not None
    assert "internal" in ((await engine.info()).last_error or "")


async def test_a_stop_string_ends_a_constrained_answer_too(engine: TorchEngine, tiny_tokenizer):
    found = await answer(engine, held_to({"const": "abcdef"}, stop=("cd",)))
    assert (found.finish_reason, found.stop_string) == (FinishReason.STOP, "cd")
    assert tiny_tokenizer.decode(found.ids) == '"abcd'


async def test_what_a_client_sees_as_logprobs_is_the_models_own(engine: TorchEngine):
    free = await answer(engine, request(PROMPT, max_tokens=1, top_logprobs=3))
    held = await answer(engine, held_to({"const": "abc"}, max_tokens=1, top_logprobs=3))
    assert [id_ for id_, _ in held.client[0].top] == [id_ for id_, _ in free.client[0].top]
    assert held.client[0].logprob < held.logprobs[0]


async def test_a_pinned_version_and_several_versions_are_constrained_alike(
    engine: TorchEngine, tiny_models: list[Path], tiny_tokenizer
):
    await engine.load(source(tiny_models[1], 1), live=True)
    asked = [replace(held_to({"enum": ["ab", "cd"]}), version=version) for version in (0, 1)]
    for found in await asyncio.gather(*[answer(engine, one) for one in asked]):
        assert json.loads(tiny_tokenizer.decode(found.ids)) in ("ab", "cd")
    assert (await engine.info()).live == {POLICY: 1}
