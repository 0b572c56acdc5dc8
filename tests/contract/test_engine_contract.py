"""What every engine promises: run on the scripted one, the PyTorch one, and one over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn

from quick_server import serving
from rejoinder.config import ScriptedEngineConfig
from rejoinder.engine.app import EngineHolder, engine_app
from rejoinder.engine.base import Constraint, Engine, Form, GenerateRequest, ScoreRequest
from rejoinder.engine.client import HttpEngine
from rejoinder.engine.scripted import ScriptedEngine
from rejoinder.errors import (
    ConstraintRefused,
    ContextLengthExceeded,
    EngineTimeout,
    EngineUnavailable,
    InvalidRequest,
    UnknownVersion,
)
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import FinishReason
from tiny_model import (
    POLICY,
    answer,
    request,
    save_tiny_model,
    source,
    torch_engine,
    until_idle,
)

PROMPT = list(range(40, 60))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: ModelTokenizer) -> list[Path]:
    """Three versions of one model."""
    root = tmp_path_factory.mktemp("models")
    return [save_tiny_model(root / str(seed), tiny_tokenizer, seed=seed) for seed in range(3)]


@contextlib.asynccontextmanager
async def over_http(engine: Engine) -> AsyncIterator[HttpEngine]:
    holder = EngineHolder()
    holder.engine = engine
    config = uvicorn.Config(engine_app(holder), log_config=None, lifespan="off")
    async with serving(config) as url:
        client = HttpEngine(url)
        try:
            yield client
        finally:
            await client.close()


@pytest.fixture(params=["scripted", "torch", "http"])
async def engine(request: pytest.FixtureRequest, models: list[Path]) -> AsyncIterator[Engine]:
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "scripted":
            config = ScriptedEngineConfig(
                answer="A scripted answer of some length.",
                tokens_per_second=500,
                context_length=256,
            )
            made: Engine = ScriptedEngine(models[0], POLICY, config)
            stack.push_async_callback(made.close)
        else:
            made = await stack.enter_async_context(torch_engine(models[0]))
            if request.param == "http":
                made = await stack.enter_async_context(over_http(made))
        yield made


async def test_info_says_what_a_caller_must_check(engine: Engine, tiny_tokenizer: ModelTokenizer):
    info = await engine.info()
    assert info.tokenizer_hash == tiny_tokenizer.hash
    assert info.context_length == 256
    assert info.eos_ids == list(tiny_tokenizer.eos_ids)
    assert info.live == {POLICY: 0}
    assert info.loaded == {POLICY: [0]}
    assert {"logprobs", "score", "multi_version"} <= set(info.capabilities)


async def test_an_answer_has_a_finite_logprob_for_each_id_and_one_end(engine: Engine):
    found = await answer(engine, request(PROMPT, max_tokens=12))
    assert 0 < len(found.ids) <= 12
    assert len(found.logprobs) == len(found.ids)
    assert all(math.isfinite(logprob) and logprob <= 0 for logprob in found.logprobs)
    assert found.versions == [0] * len(found.ids)
    assert found.finish_reason is not None


async def test_an_answer_that_nobody_reads_along_has_the_same_tokens(engine: Engine):
    asked = request(PROMPT, max_tokens=12, temperature=0.0)
    found = await answer(engine, asked)
    whole = await answer(engine, replace(asked, whole=True))
    assert (whole.ids, whole.finish_reason) == (found.ids, found.finish_reason)
    assert whole.logprobs == pytest.approx(found.logprobs, abs=1e-4)


async def test_what_one_salt_has_asked_tells_another_nothing(engine: Engine):
    asked = request(PROMPT, max_tokens=12, temperature=0.0, cache_salt="one")
    first = await answer(engine, asked)
    other = await answer(engine, replace(asked, cache_salt="other"))
    own = await answer(engine, replace(asked, cache_salt=""))
    assert (other.cached_tokens, own.cached_tokens) == (0, 0)
    assert first.ids == other.ids == own.ids
    assert other.logprobs == pytest.approx(first.logprobs, abs=1e-4)


async def test_max_tokens_ends_an_answer_for_length(engine: Engine):
    found = await answer(engine, request(PROMPT, max_tokens=3, logit_bias={258: -100.0}))
    assert len(found.ids) == 3
    assert found.finish_reason is FinishReason.LENGTH


async def test_a_sampled_end_token_ends_the_answer_and_stays_in_the_ids(engine: Engine):
    found = await answer(engine, request(PROMPT, max_tokens=100, logit_bias={258: 8.0}))
    assert found.finish_reason is FinishReason.STOP
    assert found.stop_string is None
    assert found.ids[-1] == 258
    assert 258 not in found.ids[:-1]


async def test_the_end_of_the_context_ends_an_answer_for_length(engine: Engine):
    asked = request([41] * 250, max_tokens=100, logit_bias={258: -100.0})
    found = await answer(engine, asked)
    assert len(found.ids) == 6
    assert found.finish_reason is FinishReason.LENGTH


async def test_tokens_arrive_while_the_answer_is_being_sampled(engine: Engine):
    found = await answer(engine, request(PROMPT, max_tokens=10, logit_bias={258: -100.0}))
    assert found.chunks > 1


async def test_a_prompt_that_fills_the_context_is_refused_as_too_long(engine: Engine):
    with pytest.raises(ContextLengthExceeded, match="256") as caught:
        await answer(engine, request([41] * 256))
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")


@pytest.mark.parametrize("prompt", [[], [-1], [1, 320]])
async def test_prompts_without_ids_or_with_ids_outside_the_vocabulary_are_refused(
    engine: Engine, prompt: list[int]
):
    with pytest.raises(InvalidRequest):
        await answer(engine, request(prompt))
    assert (await answer(engine, request(PROMPT))).finish_reason is not None


def held_to(schema: object, *, unless: tuple[int, ...] = (), **sampling: object) -> GenerateRequest:
    constraint = Constraint([Form(json.dumps(schema))], unless=list(unless))
    return replace(request(PROMPT, **sampling), constraint=constraint)


async def constrains(engine: Engine) -> bool:
    return "json_schema" in (await engine.info()).capabilities


async def test_an_engine_that_cannot_constrain_refuses_every_constraint(engine: Engine):
    if await constrains(engine):
        pytest.skip("it can")
    with pytest.raises(ConstraintRefused, match="engine 'scripted'") as caught:
        await answer(engine, held_to({"type": "object"}))
    assert (caught.value.status, caught.value.code) == (400, "invalid_schema")


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"seed": 1}, {"seed": 2, "top_k": 5}])
async def test_a_constrained_answer_fits_its_schema_and_has_logprobs(
    engine: Engine, tiny_tokenizer: ModelTokenizer, sampling: dict[str, object]
):
    if not await constrains(engine):
        pytest.skip("it cannot")
    schema = {
        "type": "object",
        "properties": {"s": {"type": "string", "maxLength": 5}, "n": {"enum": [1, 20]}},
        "required": ["s", "n"],
        "additionalProperties": False,
    }
    found = await answer(engine, held_to(schema, max_tokens=200, **sampling))
    assert found.finish_reason is FinishReason.STOP
    said = json.loads(tiny_tokenizer.decode(found.ids))
    assert list(said) == ["s", "n"]
    assert len(said["s"]) <= 5
    assert said["n"] in (1, 20)
    assert len(found.logprobs) == len(found.ids)
    assert all(math.isfinite(logprob) and logprob <= 0 for logprob in found.logprobs)


@pytest.mark.parametrize("seed", range(3))
async def test_a_constrained_answer_may_be_one_of_several_forms_with_text_around_the_json(
    engine: Engine, tiny_tokenizer: ModelTokenizer, seed: int
):
    if not await constrains(engine):
        pytest.skip("it cannot")
    forms = [
        Form('{"enum": [1, 22]}', before="a ", after="!\n"),
        Form('{"const": "é"}', before=" ab: ", after="</x>"),
    ]
    asked = replace(request(PROMPT, seed=seed, max_tokens=30), constraint=Constraint(forms))
    found = await answer(engine, asked)
    assert found.finish_reason is FinishReason.STOP
    assert tiny_tokenizer.decode(found.ids) in {"a 1!\n", "a 22!\n", ' ab: "é"</x>'}


async def test_a_constrained_answer_that_is_cut_ends_for_length(
    engine: Engine, tiny_tokenizer: ModelTokenizer
):
    if not await constrains(engine):
        pytest.skip("it cannot")
    found = await answer(engine, held_to({"const": "long enough"}, max_tokens=4))
    assert tiny_tokenizer.decode(found.ids) == '"lon'
    assert found.finish_reason is FinishReason.LENGTH


async def test_an_id_that_lifts_the_constraint_may_come_first(engine: Engine):
    if not await constrains(engine):
        pytest.skip("it cannot")
    asked = held_to({"const": 1}, unless=(90,), max_tokens=5, logit_bias={90: 100.0})
    assert (await answer(engine, asked)).ids == [90] * 5


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "nonsense"}, "nonsense"),
        ({"$ref": "#"}, "no finite JSON text"),
        ({"enum": ["x" * 70_000]}, "characters"),
    ],
)
async def test_a_schema_that_cannot_be_enforced_is_refused_and_says_why(
    engine: Engine, schema: object, said: str
):
    if not await constrains(engine):
        pytest.skip("it cannot")
    with pytest.raises(ConstraintRefused, match=said) as caught:
        await answer(engine, held_to(schema))
    assert (caught.value.status, caught.value.code) == (400, "invalid_schema")
    assert (await answer(engine, request(PROMPT))).finish_reason is not None


async def test_an_unknown_policy_or_version_is_refused(engine: Engine):
    for asked in (request(PROMPT, policy="other"), request(PROMPT, version=7)):
        with pytest.raises(UnknownVersion) as caught:
            await answer(engine, asked)
        assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert "loaded versions: 0" in str(caught.value)


async def test_closing_the_iterator_frees_the_engine_within_a_moment(engine: Engine):
    stream = engine.generate(request(PROMPT, max_tokens=200, logit_bias={258: -100.0}))
    await anext(stream)
    await stream.aclose()
    await until_idle(engine)


async def test_a_cancelled_reader_frees_the_engine_too(engine: Engine):
    asked = request(PROMPT, max_tokens=200, logit_bias={258: -100.0})
    reading = asyncio.create_task(answer(engine, asked))
    await asyncio.sleep(0.05)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await until_idle(engine)


async def test_a_passed_deadline_is_a_timeout(engine: Engine):
    with pytest.raises(EngineTimeout) as caught:
        await answer(engine, request(PROMPT, max_tokens=100, deadline_s=0.0))
    assert caught.value.status == 504


async def test_many_answers_at_once_are_all_whole(engine: Engine):
    asked = [request(PROMPT[: 5 + n], max_tokens=5 + n) for n in range(12)]
    answers = await asyncio.gather(*[answer(engine, one) for one in asked])
    for n, found in enumerate(answers):
        assert found.finish_reason is not None
        assert 0 < len(found.ids) == len(found.logprobs) <= 5 + n


async def test_client_logprobs_come_only_where_asked_for(engine: Engine):
    assert (await answer(engine, request(PROMPT))).client == []
    plain = await answer(engine, request(PROMPT, top_logprobs=0))
    assert len(plain.client) == len(plain.ids)
    assert all(entry.top == [] for entry in plain.client)
    some = await answer(engine, request(PROMPT, top_logprobs=1))
    assert [len(entry.top) for entry in some.client] == [1] * len(some.ids)


async def test_scoring_covers_exactly_the_positions_asked_for(engine: Engine):
    ids = PROMPT
    whole = await engine.score(ScoreRequest("s", ids, POLICY))
    assert len(whole.logprobs) == len(ids) - 1
    assert whole.version == 0
    part = await engine.score(ScoreRequest("s", ids, POLICY, start=4, stop=9))
    assert part.logprobs == pytest.approx(whole.logprobs[3:8], abs=1e-5)
    assert part.top == []
    assert part.candidates == []


async def test_scoring_reaches_one_position_beyond_the_ids(engine: Engine):
    end = len(PROMPT)
    asked = ScoreRequest("s", PROMPT, POLICY, start=end, stop=end + 1, candidates=[[5, 6, 258]])
    found = await engine.score(asked)
    assert found.logprobs == []
    assert [len(row) for row in found.candidates] == [3]
    assert all(math.isfinite(value) for value in found.candidates[0])


async def test_candidates_may_differ_in_number_and_agree_with_the_ids_own_logprobs(engine: Engine):
    candidates = [[PROMPT[2]], [], [7, PROMPT[4]]]
    asked = ScoreRequest("s", PROMPT, POLICY, start=2, stop=5, candidates=candidates, top_k=3)
    found = await engine.score(asked)
    assert [len(row) for row in found.candidates] == [1, 0, 2]
    assert found.candidates[0][0] == pytest.approx(found.logprobs[0], abs=1e-5)
    assert found.candidates[2][1] == pytest.approx(found.logprobs[2], abs=1e-5)
    assert [len(row) for row in found.top] == [3, 3, 3]
    assert all(row == sorted(row, key=lambda pair: -pair[1]) for row in found.top)


@pytest.mark.parametrize(
    "bad",
    [
        {"start": 0},
        {"start": 5, "stop": 5},
        {"stop": 22},
        {"candidates": [[1]]},
        {"candidates": [[999]], "start": 1, "stop": 2},
        {"temperature": 0.0},
        {"top_k": -1},
    ],
)
async def test_scores_that_make_no_sense_are_refused(engine: Engine, bad: dict[str, object]):
    with pytest.raises(InvalidRequest):
        await engine.score(ScoreRequest("s", PROMPT, POLICY, **bad))  # type: ignore[arg-type]


async def test_a_new_live_version_serves_and_old_ones_can_still_be_asked(
    engine: Engine, models: list[Path]
):
    await engine.load(source(models[1], 1), live=True)
    assert (await engine.info()).live == {POLICY: 1}
    assert set((await answer(engine, request(PROMPT))).versions) == {1}
    assert set((await answer(engine, request(PROMPT, version=0))).versions) == {0}
    assert (await engine.score(ScoreRequest("s", PROMPT, POLICY))).version == 1
    assert (await engine.score(ScoreRequest("s", PROMPT, POLICY, version=0))).version == 0


async def test_a_version_can_be_loaded_beside_the_live_one(engine: Engine, models: list[Path]):
    await engine.load(source(models[1], 1), live=False)
    await engine.load(source(models[1], 1), live=False)
    info = await engine.info()
    assert info.live == {POLICY: 0}
    assert info.loaded == {POLICY: [0, 1]}
    assert set((await answer(engine, request(PROMPT, version=1))).versions) == {1}


async def test_unloading_frees_a_version_but_never_the_live_one(engine: Engine, models: list[Path]):
    await engine.load(source(models[1], 1), live=False)
    await engine.unload(POLICY, 1)
    await engine.unload(POLICY, 1)
    await engine.unload("nobody", 3)
    await engine.unload(POLICY, 0)
    assert (await engine.info()).loaded == {POLICY: [0]}
    with pytest.raises(UnknownVersion):
        await answer(engine, request(PROMPT, version=1))


async def test_the_start_weights_are_never_freed_for_judges_need_them(
    engine: Engine, models: list[Path]
):
    await engine.load(source(models[0], 0), live=False)
    await engine.load(source(models[1], 1), live=True)
    await engine.unload(POLICY, 0)
    assert (await engine.info()).loaded == {POLICY: [0, 1]}
    assert set((await answer(engine, request(PROMPT, version=0))).versions) == {0}


async def test_a_closed_engine_is_unavailable(engine: Engine):
    await engine.close()
    with pytest.raises(EngineUnavailable) as caught:
        await answer(engine, request(PROMPT))
    assert caught.value.status == 503
    with pytest.raises(EngineUnavailable):
        await engine.score(ScoreRequest("s", PROMPT, POLICY))


async def test_closing_ends_answers_in_flight_with_unavailable(engine: Engine):
    asked = request(PROMPT, max_tokens=230, logit_bias={258: -100.0})
    stream = engine.generate(asked)
    await anext(stream)
    await engine.close()
    with pytest.raises(EngineUnavailable):
        async for _ in stream:
            pass
