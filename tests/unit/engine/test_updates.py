"""New weights between two steps: requests in flight stay whole, and nothing stale is reused."""

from __future__ import annotations

import asyncio
import weakref
from pathlib import Path

import pytest
import torch

from rejoinder.engine.base import ScoreRequest
from rejoinder.models.loading import load_model
from tiny_model import (
    POLICY,
    Answer,
    answer,
    reference_logprobs,
    request,
    source,
    torch_engine,
    until,
)

PROMPT = list(range(40, 70))
NO_END = {258: -100.0}
LONG = {"max_tokens": 200, "logit_bias": NO_END}


async def test_requests_in_flight_go_on_with_new_weights_and_lose_no_token(
    tiny_models: list[Path],
):
    async with torch_engine(tiny_models[0]) as engine:
        under_way = [Answer() for _ in range(3)]
        reading = [
            asyncio.create_task(answer(engine, request(PROMPT[n:], **LONG), found))
            for n, found in enumerate(under_way)
        ]
        await until(lambda: all(len(found.ids) > 20 for found in under_way))
        await engine.load(source(tiny_models[1], 1), live=True)
        await asyncio.gather(*reading)
        for found in under_way:
            assert len(found.ids) == len(found.logprobs) == 200
            assert found.versions == sorted(found.versions)
            assert set(found.versions) == {0, 1}


async def test_each_token_has_the_logprob_of_the_version_that_it_names(tiny_models: list[Path]):
    """Before the switch: version 0 over its own history. The rows computed then are kept, so
    after the switch the distribution is neither version's own, and is still recorded exactly."""
    model = load_model(tiny_models[0], torch.float32, torch.device("cpu"))
    async with torch_engine(tiny_models[0]) as engine:
        found = Answer()
        asked = request(PROMPT, max_tokens=200)
        asked.sampling.logit_bias.clear()
        reading = asyncio.create_task(answer(engine, asked, found))
        await until(lambda: len(found.ids) > 3 or reading.done())
        await engine.load(source(tiny_models[1], 1), live=True)
        await reading
        old = found.versions.count(0)
        expected = reference_logprobs(model, PROMPT + found.ids[:old], len(PROMPT))
        assert torch.tensor(found.logprobs[:old]) == pytest.approx(expected, abs=2e-4)


async def test_a_pinned_version_does_not_follow_an_update(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0]) as engine:
        found = Answer()
        asked = request(PROMPT, version=0, **LONG)
        reading = asyncio.create_task(answer(engine, asked, found))
        await until(lambda: len(found.ids) > 5)
        await engine.load(source(tiny_models[1], 1), live=True)
        await reading
        assert set(found.versions) == {0}
        assert len(found.ids) == 200


async def test_rows_of_old_weights_are_never_reused_after_an_update(tiny_models: list[Path]):
    """Guards against a prefix cache that outlives its weights: logprobs equal a cold engine's."""
    async with torch_engine(tiny_models[0]) as engine, torch_engine(tiny_models[1]) as cold:
        await answer(engine, request(PROMPT))
        assert (await answer(engine, request(PROMPT))).cached_tokens == len(PROMPT) - 1
        await engine.load(source(tiny_models[1], 1), live=True)
        after = await answer(engine, request(PROMPT, seed=1))
        assert after.cached_tokens == 0
        fresh = await answer(cold, request(PROMPT, seed=1))
        assert after.ids == fresh.ids
        assert after.logprobs == pytest.approx(fresh.logprobs, abs=1e-5)


async def test_rows_that_two_versions_computed_are_never_reused(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0]) as engine:
        found = Answer()
        reading = asyncio.create_task(answer(engine, request(PROMPT, **LONG), found))
        await until(lambda: len(found.ids) > 5)
        await engine.load(source(tiny_models[1], 1), live=True)
        await reading
        for version in (0, 1):
            history = PROMPT + found.ids
            scored = await engine.score(
                ScoreRequest("s", history, POLICY, version, start=len(PROMPT) + 1)
            )
            assert scored.cached_tokens == 0


async def test_a_prompt_without_an_answer_token_starts_again_with_the_new_weights(
    tiny_models: list[Path],
):
    """Its tokens name one version, so their logprobs must be that version's altogether."""
    model = load_model(tiny_models[1], torch.float32, torch.device("cpu"))
    prompt = [40 + n % 100 for n in range(240)]
    async with torch_engine(tiny_models[0], prefill_chunk=8) as engine:
        found = Answer()
        reading = asyncio.create_task(answer(engine, request(prompt, max_tokens=8), found))
        loading = asyncio.create_task(engine.load(source(tiny_models[1], 1), live=True))
        await asyncio.gather(reading, loading)
        new = [n for n, version in enumerate(found.versions) if version == 1]
        if found.versions[0] == 1:
            expected = reference_logprobs(model, prompt + found.ids, len(prompt))
            assert torch.tensor(found.logprobs) == pytest.approx(expected, abs=2e-4)
        assert new == list(range(len(found.ids) - len(new), len(found.ids)))


async def test_a_version_that_is_no_longer_live_is_freed_and_the_start_weights_stay(
    tiny_models: list[Path],
):
    async with torch_engine(tiny_models[0]) as engine:
        await engine.load(source(tiny_models[1], 1), live=True)
        await engine.load(source(tiny_models[2], 2), live=True)
        assert (await engine.info()).loaded == {POLICY: [0, 2]}


async def test_the_memory_of_a_replaced_version_is_given_back(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0]) as engine:
        await engine.load(source(tiny_models[1], 1), live=True)
        await answer(engine, request(PROMPT))
        weights = engine._worker.versions.resolve(POLICY, 1)
        embedding = weakref.ref(weights.forward.embedding)
        del weights
        await engine.load(source(tiny_models[2], 2), live=True)
        await answer(engine, request(PROMPT))
        await until(lambda: embedding() is None)


async def test_a_version_loaded_on_purpose_stays_until_it_is_unloaded(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0]) as engine:
        await engine.load(source(tiny_models[1], 1), live=False)
        await engine.load(source(tiny_models[1], 1), live=True)
        await engine.load(source(tiny_models[2], 2), live=True)
        assert (await engine.info()).loaded == {POLICY: [0, 1, 2]}


async def test_a_rollback_makes_an_older_version_live_again(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0]) as engine:
        before = await answer(engine, request(PROMPT, temperature=0.0))
        await engine.load(source(tiny_models[1], 1), live=True)
        await engine.load(source(tiny_models[0], 0), live=True)
        after = await answer(engine, request(PROMPT, temperature=0.0))
        assert (after.ids, set(after.versions)) == (before.ids, {0})


async def test_a_version_from_another_place_replaces_the_one_of_the_same_number(
    tiny_models: list[Path],
):
    """Guards against weights cached by name: numbers can come again in a new lineage."""
    async with torch_engine(tiny_models[0]) as engine:
        await engine.load(source(tiny_models[1], 1), live=True)
        first = await engine.score(ScoreRequest("s", PROMPT, POLICY))
        await engine.load(source(tiny_models[2], 1), live=True)
        second = await engine.score(ScoreRequest("s", PROMPT, POLICY))
        assert first.version == second.version == 1
        assert first.logprobs != pytest.approx(second.logprobs, abs=1e-2)
        assert second.cached_tokens == 0


async def test_an_answer_on_an_unloaded_version_ends_whole(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0]) as engine:
        await engine.load(source(tiny_models[1], 1), live=False)
        found = Answer()
        asked = request(PROMPT, version=1, **LONG)
        reading = asyncio.create_task(answer(engine, asked, found))
        await until(lambda: len(found.ids) > 5)
        await engine.unload(POLICY, 1)
        await reading
        assert (len(found.ids), set(found.versions)) == (200, {1})
