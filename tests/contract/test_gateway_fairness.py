"""Several keys before one engine that is full: none waits behind another's crowd."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest
from gateway_kit import KEYS, running, user

from rejoinder.errors import JournalError
from tiny_model import save_tiny_model, torch_engine

ALICE, BOB, CAROL = (
    {"authorization": f"Bearer {key}"} for key in ("sk-alice-1", "sk-bob-22", "sk-carol")
)


@pytest.mark.parametrize("together", [True, False], ids=["at once", "one request of many answers"])
async def test_a_single_request_does_not_wait_for_another_keys_crowd(
    tiny_tokenizer, journal_url, tmp_path, together
):
    model = save_tiny_model(tmp_path / "model", tiny_tokenizer)
    sizes = {"max_tokens": 12, "logit_bias": {"258": -100}}
    async with (
        torch_engine(model, max_running=2) as engine,
        running(tiny_tokenizer, journal_url, keys=KEYS) as g,
    ):
        g.service.engine = engine
        await g.service.probe_engine()
        requests, answers = (100, 1) if together else (4, 25)
        crowd = [
            asyncio.create_task(g.chat(user("a" * 20), headers=ALICE, n=answers, **sizes))
            for _ in range(requests)
        ]
        await g.eventually(lambda: engine._worker.scheduler.waiting > 90, seconds=20)
        single = await g.chat(user("b" * 20), headers=BOB, **sizes)
        left = engine._worker.scheduler.waiting
        assert single.status_code == 200
        assert left > 80, "the crowd still waits"
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)


async def test_no_tenant_learns_what_another_has_asked(tiny_tokenizer, journal_url, tmp_path):
    """The engine's cache was one for all, and ``cached_tokens`` told what was in it."""
    model = save_tiny_model(tmp_path / "model", tiny_tokenizer)
    asked = {"max_tokens": 8, "temperature": 0.0, "logit_bias": {"258": -100}}
    async with (
        torch_engine(model) as engine,
        running(tiny_tokenizer, journal_url, keys=KEYS, served_by=engine) as g,
    ):
        found = [await g.answer(user("a" * 20), headers=who, **asked) for who in (ALICE, CAROL)]
        bob = await g.answer(user("a" * 20), headers=BOB, **asked)
        carol = await g.answer(user("a" * 20), headers=CAROL, **asked)
    found += [bob, carol]
    cached = [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in found]
    whole = found[0]["usage"]["prompt_tokens"] - 1
    assert cached == [0, 0, whole, whole], "keys of one tenant share, as they share its data"
    assert len({one["choices"][0]["message"]["content"] for one in found}) == 1


async def test_the_engine_is_told_of_a_tenant_by_a_salt_that_does_not_name_it(gateway):
    async with gateway(keys=KEYS) as g:
        for who in (ALICE, BOB, CAROL):
            await g.chat(user("Hi"), headers=who)
        alice, bob, carol = [request.cache_salt for request in g.engine.requests]
        assert alice == bob != carol
        assert all(alice), "an empty one is the system's own"
        assert not any(name in salt for salt in (alice, carol) for name in ("acme", "other", "sk-"))


async def test_a_key_that_is_at_its_limit_leaves_the_others_theirs(gateway):
    async with gateway(keys=KEYS, requests_per_minute=2) as g:
        statuses = [(await g.chat(user("Hi"), headers=ALICE)).status_code for _ in range(4)]
        assert statuses == [200, 200, 429, 429]
        refused = await g.chat(user("Hi"), headers=ALICE)
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert 29 <= int(refused.headers["retry-after"]) <= 30
        assert (await g.chat(user("Hi"), headers=BOB)).status_code == 200


async def test_tokens_of_all_answers_and_of_broken_ones_count(gateway):
    async with gateway(keys=KEYS, tokens_per_minute=500, request_timeout_s=1.0) as g:
        g.engine.say("x" * 40, gate=asyncio.Event(), gate_after=30)
        assert (await g.chat(user("Hi"), headers=ALICE, n=32)).status_code == 504
        refused = await g.chat(user("Hi"), headers=ALICE)
        assert refused.status_code == 429
        assert "500 tokens per minute" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/sessions/done"),
        ("POST", "/v1/feedback"),
    ],
)
async def test_whatever_reaches_the_journal_counts_as_a_request(gateway, method, path):
    """Stored responses could be read without end, by threads that every caller's linking needs."""
    async with gateway(keys=KEYS, requests_per_minute=2) as g:
        sent = [await g.client.request(method, path, headers=ALICE) for _ in range(3)]
        assert [one.status_code == 429 for one in sent] == [False, False, True]
        assert (await g.client.request(method, path, headers=BOB)).status_code != 429


@pytest.mark.parametrize(
    ("write", "method", "path", "body"),
    [
        ("add_feedback", "POST", "/v1/feedback", {"completion_id": "c", "score": 1}),
        ("delete_response", "DELETE", "/v1/responses/resp_1", None),
    ],
)
async def test_a_write_that_is_not_done_holds_its_callers_place(
    gateway, monkeypatch, write, method, path, body
):
    """Else one key could fill the queue of writes, whatever its limit."""
    async with gateway(keys=KEYS, max_concurrent=1) as g:
        waits: Future[None] = Future()
        monkeypatch.setattr(g.journal, write, lambda *_: waits)
        first = asyncio.create_task(g.client.request(method, path, headers=ALICE, json=body))
        await g.eventually(lambda: g.service.admission.active == 1)
        async with asyncio.timeout(10):  # where it is let in, it waits as the first one does
            second = await g.client.request(method, path, headers=ALICE, json=body)
        assert second.status_code == 429
        waits.set_exception(JournalError("disk full"))
        assert (await first).status_code == 503
