"""Whatever is sent: no 5xx, no connection that hangs, no place, slot or turn that stays behind.

``make fuzz`` sends 100,000 requests of each dialect; a dialect is a file in ``examples``.
"""

from __future__ import annotations

import pytest
from gateway_kit import KEYS, running, user
from mutate import Dialect, case, dialects
from storm import storm

SETTINGS = {"max_body_bytes": 200_000, "request_timeout_s": 60.0}


@pytest.mark.parametrize("dialect", dialects(), ids=lambda one: one.name)
async def test_no_request_does_harm(
    dialect: Dialect, tiny_tokenizer, journal_url, pytestconfig: pytest.Config
):
    count = pytestconfig.getoption("--fuzz-requests")
    seed = pytestconfig.getoption("--fuzz-seed")
    async with running(tiny_tokenizer, journal_url, keys=KEYS, **SETTINGS) as g:
        report = await storm(g, dialect, seed, range(count))
        print(f"{dialect.name}: {count} requests, {dict(sorted(report.statuses.items()))}")
        assert not report.faults, "\n".join(report.faults)
        g.engine.say("Paris.")
        headers = {"authorization": "Bearer sk-alice-1"}
        assert (await g.chat(user("Still there?"), headers=headers)).status_code == 200
        assert (await g.client.get("/readyz")).status_code == 200


@pytest.mark.parametrize("dialect", dialects(), ids=lambda one: one.name)
def test_cases_are_the_same_every_time_and_differ_from_each_other(dialect: Dialect):
    made = [case(dialect, 1, number).data for number in range(200)]
    assert made == [case(dialect, 1, number).data for number in range(200)]
    assert len(set(made)) > 150


@pytest.mark.parametrize("dialect", dialects(), ids=lambda one: one.name)
async def test_examples_are_valid(dialect: Dialect, tiny_tokenizer, journal_url):
    async with running(tiny_tokenizer, journal_url) as g:
        for body in dialect.bodies:
            response = await g.client.post(dialect.path, json=body)
            expected = 404 if dialect.name == "feedback" else 200  # there is no such answer
            assert response.status_code == expected, response.text
