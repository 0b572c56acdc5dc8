"""Batching, prefix reuse, sampling settings and failures of the PyTorch engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rejoinder.engine.base import ScoreRequest
from rejoinder.engine.torch_engine.engine import TorchEngine
from rejoinder.errors import EngineBusy, EngineError, EngineTimeout
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import FinishReason
from tiny_model import POLICY, Answer, answer, request, torch_engine, until

PROMPT = list(range(40, 70))
LONG = {"max_tokens": 200, "logit_bias": {258: -100.0}}


@pytest.fixture
async def engine(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0]) as made:
        yield made


async def test_a_seed_gives_the_same_answer_alone_and_in_company(engine: TorchEngine):
    asked = request(PROMPT, seed=7, max_tokens=40)
    alone = await answer(engine, asked)
    company = [request(PROMPT[n:], seed=n, max_tokens=40) for n in range(1, 6)]
    together = await asyncio.gather(*[answer(engine, one) for one in [*company, asked]])
    assert together[-1].ids == alone.ids
    assert together[-1].logprobs == pytest.approx(alone.logprobs, abs=1e-4)


async def test_different_seeds_and_no_seed_give_different_answers(engine: TorchEngine):
    answers = [
        await answer(engine, request(PROMPT, seed=seed, max_tokens=30, temperature=2.0))
        for seed in (1, 2, None, None)
    ]
    assert len({tuple(found.ids) for found in answers}) == 4


async def test_the_next_turn_of_a_session_computes_only_what_is_new(
    engine: TorchEngine, tiny_models: list[Path]
):
    first = await answer(engine, request(PROMPT, seed=1, max_tokens=10, logit_bias={258: -100.0}))
    history = [*PROMPT, *first.ids, 100, 101, 102]
    second = await answer(engine, request(history, seed=2))
    # The last sampled token has no row yet: it was never fed to the model.
    assert second.cached_tokens == len(PROMPT) + 9
    async with torch_engine(tiny_models[0]) as cold:
        fresh = await answer(cold, request(history, seed=2))
    assert fresh.cached_tokens == 0
    assert second.ids == fresh.ids
    assert second.logprobs == pytest.approx(fresh.logprobs, abs=1e-4)


async def test_a_running_sequence_lends_its_prefix_and_neither_disturbs_the_other(
    engine: TorchEngine, tiny_models: list[Path]
):
    found = Answer()
    reading = asyncio.create_task(answer(engine, request(PROMPT, seed=3, **LONG), found))
    await until(lambda: len(found.ids) > 2)
    other = await answer(engine, request([*PROMPT[:25], 99, 98], seed=4, max_tokens=30))
    await reading
    assert other.cached_tokens == 25
    async with torch_engine(tiny_models[0]) as cold:
        assert (await answer(cold, request(PROMPT, seed=3, **LONG))).ids == found.ids
        same = await answer(cold, request([*PROMPT[:25], 99, 98], seed=4, max_tokens=30))
        assert same.ids == other.ids


async def test_a_shared_system_prompt_does_not_cost_another_session_its_rows(engine: TorchEngine):
    one = [*PROMPT[:8], *range(100, 160)]
    other = [*PROMPT[:8], *range(160, 220)]
    await answer(engine, request(one, max_tokens=1))
    assert (await answer(engine, request(other, max_tokens=1))).cached_tokens == 8
    assert (await answer(engine, request(one, max_tokens=1))).cached_tokens == len(one) - 1
    assert (await answer(engine, request(other, max_tokens=1))).cached_tokens == len(other) - 1


async def test_prompts_are_reused_within_their_salt_alone(engine: TorchEngine):
    """``cached_tokens`` told one tenant whether another had sent the same beginning."""
    asked = [request(PROMPT, seed=5, max_tokens=8, cache_salt=salt) for salt in ("a", "b", "")]
    cold = [await answer(engine, one) for one in asked]
    warm = [await answer(engine, one) for one in asked]
    assert [found.cached_tokens for found in cold] == [0, 0, 0]
    assert [found.cached_tokens for found in warm] == [len(PROMPT) - 1] * 3
    for found in [*cold, *warm]:
        assert found.ids == cold[0].ids
        assert found.logprobs == pytest.approx(cold[0].logprobs, abs=1e-4)
    scored = await engine.score(ScoreRequest("s", [*PROMPT[:20], 99], POLICY, start=20))
    assert scored.cached_tokens == 19, "scores are the system's own, as what has no salt"


async def test_equal_prompts_of_two_salts_do_not_wait_for_each_other(engine: TorchEngine):
    """Waiting for the other's rows would tell of them, by time."""
    prompt = [40 + n % 90 for n in range(100)]
    asked = [request(prompt, seed=1, max_tokens=5, cache_salt=salt) for salt in "abab"]
    answers = await asyncio.gather(*[answer(engine, one) for one in asked])
    assert [found.cached_tokens for found in answers] == [0, 0, 99, 99]


async def test_siblings_that_arrive_together_compute_their_prompt_once(engine: TorchEngine):
    prompt = [40 + n % 90 for n in range(100)]
    asked = [request(prompt, seed=n, max_tokens=5) for n in range(4)]
    answers = await asyncio.gather(*[answer(engine, one) for one in asked])
    assert sorted(found.cached_tokens for found in answers) == [0, 99, 99, 99]


async def test_scoring_reuses_rows_and_gives_the_same_logprobs(engine: TorchEngine):
    cold = await engine.score(ScoreRequest("s", PROMPT, POLICY, start=21))
    warm = await engine.score(ScoreRequest("s", PROMPT, POLICY, start=21))
    assert (cold.cached_tokens, warm.cached_tokens) == (0, 20)
    assert warm.logprobs == pytest.approx(cold.logprobs, abs=1e-5)


async def test_a_long_prompt_does_not_stall_an_answer_under_way(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0], prefill_chunk=8) as engine:
        found = Answer()
        reading = asyncio.create_task(answer(engine, request(PROMPT, **LONG), found))
        await until(lambda: len(found.ids) > 2)
        before = len(found.ids)
        await answer(engine, request([41] * 240, max_tokens=1))
        # 240 prompt tokens in chunks of 8 are 30 steps, and the other one decodes in each.
        assert len(found.ids) - before >= 25
        await reading


@pytest.mark.parametrize(
    ("settings", "kept"),
    [({"top_k": 1}, 1), ({"top_k": 3}, 3), ({"min_p": 1.0}, 1), ({"top_p": 1e-9}, 1)],
)
async def test_truncated_sampling_keeps_to_its_tokens_and_reports_their_logprobs(
    engine: TorchEngine, settings: dict[str, float], kept: int
):
    found = await answer(
        engine, request(PROMPT, max_tokens=30, top_logprobs=5, temperature=1.5, **settings)
    )
    for id_, logprob, client in zip(found.ids, found.logprobs, found.client, strict=True):
        best = [top_id for top_id, _ in client.top[:kept]]
        assert id_ in best
        weights = [pow(2.718281828, value / 1.5) for _, value in client.top[:kept]]
        own = pow(2.718281828, client.logprob / 1.5) / sum(weights)
        assert pow(2.718281828, logprob) == pytest.approx(own, abs=1e-3)


async def test_greedy_answers_take_the_most_likely_token_and_report_its_plain_logprob(
    engine: TorchEngine,
):
    found = await answer(engine, request(PROMPT, temperature=0.0, top_logprobs=1))
    assert found.ids == [client.top[0][0] for client in found.client]
    plain = [client.logprob for client in found.client]
    assert found.logprobs == pytest.approx(plain, abs=1e-5)


async def test_client_logprobs_are_untempered_and_without_bias(engine: TorchEngine):
    plain = await answer(engine, request(PROMPT, max_tokens=1, top_logprobs=3))
    shaped = await answer(
        engine,
        request(PROMPT, max_tokens=1, top_logprobs=3, temperature=0.3, logit_bias={99: 50.0}),
    )
    assert shaped.ids == [99]
    assert shaped.logprobs[0] == pytest.approx(0.0, abs=1e-3)
    assert shaped.client[0].logprob < -1
    assert [id_ for id_, _ in shaped.client[0].top] == [id_ for id_, _ in plain.client[0].top]


async def test_penalties_count_the_answers_own_tokens(engine: TorchEngine):
    repeated = {99: 30.0, 258: -100.0}
    found = await answer(engine, request(PROMPT, max_tokens=6, logit_bias=repeated))
    assert found.ids == [99] * 6
    found = await answer(
        engine, request(PROMPT, max_tokens=6, logit_bias=repeated, presence_penalty=60.0)
    )
    assert found.ids.count(99) == 1


async def test_a_stop_string_over_several_tokens_ends_the_answer_and_stays_in_the_ids(
    engine: TorchEngine, tiny_tokenizer: ModelTokenizer
):
    whole = await answer(engine, request(PROMPT, seed=5, max_tokens=60, logit_bias={258: -100.0}))
    text = "".join(tiny_tokenizer.decode([id_]) for id_ in whole.ids)
    at = next(n for n in range(10, 60) if tiny_tokenizer.decode(whole.ids[n : n + 3]).isascii())
    stop = tiny_tokenizer.decode(whole.ids[at : at + 3])
    assert stop in text
    asked = request(
        PROMPT, seed=5, max_tokens=60, logit_bias={258: -100.0}, stop=("never there", stop)
    )
    found = await answer(engine, asked)
    assert found.finish_reason is FinishReason.STOP
    assert found.stop_string == stop
    assert found.ids == whole.ids[: len(found.ids)]
    assert tiny_tokenizer.decode(found.ids).endswith(stop)
    assert stop not in tiny_tokenizer.decode(found.ids[:-1])


async def test_a_full_queue_refuses_with_busy_and_those_in_it_are_served(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0], max_running=1, max_waiting=2) as engine:
        first = Answer()
        running = asyncio.create_task(answer(engine, request(PROMPT, **LONG), first))
        await until(lambda: first.ids)
        queued = [asyncio.create_task(answer(engine, request(PROMPT))) for _ in range(2)]
        await asyncio.sleep(0.02)
        with pytest.raises(EngineBusy) as caught:
            await answer(engine, request(PROMPT))
        assert caught.value.status == 429
        for found in await asyncio.gather(running, *queued):
            assert found.finish_reason is not None


async def test_people_do_not_wait_for_judges_nor_judges_for_people(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0], max_running=1) as engine:
        ended: list[str] = []

        async def ask(name: str, **options: Any) -> None:
            await answer(engine, request(PROMPT, **options))
            ended.append(name)

        first = Answer()
        talking = asyncio.create_task(answer(engine, request(PROMPT, **LONG), first))
        await until(lambda: first.ids)
        await ask("judge", priority=10, max_tokens=2)
        assert not talking.done()
        await talking
        slow = asyncio.create_task(ask("slow judge", priority=10, **LONG))
        await asyncio.sleep(0.01)
        await ask("person", max_tokens=2)
        await slow
        assert ended == ["judge", "person", "slow judge"]


async def test_judges_never_take_all_places(tiny_models: list[Path]):
    async with torch_engine(tiny_models[0], max_running=4) as engine:
        judges = [
            asyncio.create_task(answer(engine, request(PROMPT[n:], priority=10, **LONG)))
            for n in range(6)
        ]
        await asyncio.sleep(0.05)
        info = await engine.info()
        assert (info.running, info.waiting) == (3, 3)
        person = await answer(engine, request(PROMPT, max_tokens=3))
        assert person.finish_reason is not None
        await asyncio.gather(*judges)


async def test_a_deadline_ends_a_running_answer_with_a_timeout(
    engine: TorchEngine, up_after_a_token
):
    found = Answer()
    with pytest.raises(EngineTimeout):
        await answer(engine, request(PROMPT, deadline_s=1000.0, **LONG), found)
    assert 0 < len(found.ids) < 200
    assert (await engine.info()).running == 0


async def test_a_failing_step_fails_its_sequences_and_the_engine_goes_on(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
):
    worker = engine._worker
    weights = worker.versions.resolve(POLICY, 0)
    logits = type(weights.forward).logits
    calls = 0

    def failing(self, batch, attention):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise RuntimeError("out of luck")
        return logits(self, batch, attention)

    monkeypatch.setattr(type(weights.forward), "logits", failing)
    with pytest.raises(EngineError, match="out of luck"):
        await answer(engine, request(PROMPT, **LONG))
    assert "out of luck" in ((await engine.info()).last_error or "")
    found = await answer(engine, request(PROMPT))
    assert found.finish_reason is not None
    assert found.cached_tokens == 0


async def test_logits_that_are_not_finite_are_an_error_and_never_a_logprob(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
):
    forward = type(engine._worker.versions.resolve(POLICY, 0).forward)
    logits = forward.logits
    monkeypatch.setattr(forward, "logits", lambda *args: logits(*args) * float("nan"))
    found = Answer()
    with pytest.raises(EngineError, match="not finite"):
        await answer(engine, request(PROMPT), found)
    assert found.logprobs == []
    with pytest.raises(EngineError, match="not finite"):
        await engine.score(ScoreRequest("s", PROMPT, POLICY))
    monkeypatch.undo()
    assert (await answer(engine, request(PROMPT))).finish_reason is not None


async def test_scores_of_many_versions_share_steps_with_answers(
    engine: TorchEngine, tiny_models: list[Path]
):
    from tiny_model import source

    await engine.load(source(tiny_models[1], 1), live=True)
    found, *scores = await asyncio.gather(
        answer(engine, request(PROMPT, max_tokens=30)),
        *[engine.score(ScoreRequest("s", PROMPT, POLICY, version=n % 2)) for n in range(6)],
    )
    assert set(found.versions) == {1}
    assert [score.version for score in scores] == [0, 1] * 3
    assert scores[0].logprobs == pytest.approx(scores[2].logprobs, abs=1e-5)
    assert scores[0].logprobs != pytest.approx(scores[1].logprobs, abs=1e-2)
