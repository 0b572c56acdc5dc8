"""The end of a session that its client tells after the last answer."""

from __future__ import annotations

import pytest
from gateway_kit import KEYS, bot, user

DONE = "/v1/sessions/done"


@pytest.mark.parametrize("by_url", [False, True], ids=["header", "URL"])
async def test_a_named_session_is_closed_and_its_last_answer_waits_no_longer(gateway, by_url):
    async with gateway() as g:
        await g.answer(user("Hi"), session_id="my chat")
        path, headers = (
            (f"/s/my%20chat{DONE}", {}) if by_url else (DONE, {"x-session-id": "my chat"})
        )
        response = await g.client.post(path, headers=headers)
        assert response.status_code == 200, response.text
        (session,) = g.rows("SELECT session_id, close_reason FROM sessions")
        assert session == {"session_id": response.json()["session_id"], "close_reason": "done"}
        (turn,) = g.turns()
        assert turn["fate"] == "no_next_state"


async def test_a_session_without_a_name_is_closed_by_the_id_in_its_responses(gateway):
    async with gateway() as g:
        answer = await g.answer(user("Hi"))
        response = await g.client.post(DONE, headers={"x-session-id": answer["session_id"]})
        assert response.json() == {"session_id": answer["session_id"]}
        assert [turn["fate"] for turn in g.turns()] == ["no_next_state"]


async def test_a_reply_after_the_end_opens_the_session_again_and_is_judged(gateway):
    async with gateway() as g:
        await g.answer(user("Hi"), session_id="a")
        await g.client.post(DONE, headers={"x-session-id": "a"})
        await g.answer(user("Hi"), bot("Paris."), user("No"), session_id="a")
        first, second = g.turns()
        assert second["parent_id"] == first["turn_id"]
        assert first["state"] == "judging"
        (session,) = g.rows("SELECT closed_at FROM sessions")
        assert session["closed_at"] is None


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 400, "invalid_value"),
        ({"x-session-id": "x" * 257}, 400, "invalid_value"),
        ({"x-session-id": "never seen"}, 404, "session_not_found"),
    ],
)
async def test_a_session_that_is_not_named_or_not_known_is_refused(gateway, headers, status, code):
    async with gateway() as g:
        response = await g.client.post(DONE, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_nobody_ends_the_session_of_another_key_or_person(gateway):
    async with gateway(keys=KEYS) as g:
        alice, bob = ({"authorization": f"Bearer {key}"} for key in ("sk-alice-1", "sk-bob-22"))
        await g.answer(user("Hi"), session_id="s", user="ann", headers=alice)
        named = {"x-session-id": "s"}
        for headers, person in ((bob, "ann"), (alice, ""), (alice, "ben")):
            response = await g.client.post(
                DONE, headers=headers | named, params={"user": person} if person else None
            )
            assert response.status_code == 404
        assert g.rows("SELECT closed_at FROM sessions") == [{"closed_at": None}]
        response = await g.client.post(DONE, headers=alice | named, params={"user": "ann"})
        assert response.status_code == 200
