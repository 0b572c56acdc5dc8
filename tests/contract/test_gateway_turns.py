"""What the gateway records, and how it links requests: cases seen in systems of this kind."""

from __future__ import annotations

import asyncio

import pytest
from gateway_kit import KEYS, Script, bot, user

from rejoinder.errors import ContextLengthExceeded
from rejoinder.journal.records import OpenTurn

HELLO = user("Capital of France?")


def named(session: str) -> dict[str, str]:
    return {"x-session-id": session}


def next_states(g) -> list[dict]:
    return g.rows("SELECT turn_id, child_id, messages, outcome FROM next_states")


async def converse(g, *turns: str, answer: str = "Paris.", headers=None, **body):
    """Hold a conversation; returns its messages."""
    g.engine.say(answer)
    messages: list = []
    for text in turns:
        messages.append(user(text))
        said = await g.answer(*messages, headers=headers, **body)
        messages.append(bot(said["choices"][0]["message"]["content"]))
    return messages


async def test_a_plain_client_without_any_header_gives_main_turns_of_one_session(gateway):
    async with gateway() as g:
        await converse(g, "Capital of France?", "Wrong, in one word!")
        first, second = g.turns()
        assert first["turn_type"] == second["turn_type"] == "main"
        assert second["parent_id"] == first["turn_id"]
        assert first["session_id"] == second["session_id"]
        assert first["state"] == "judging"
        (state,) = next_states(g)
        assert state["turn_id"] == first["turn_id"]
        assert b"one word" in state["messages"]


async def test_two_clients_without_ids_are_never_linked_by_time(gateway):
    async with gateway() as g:
        await g.answer(user("2+2?"))
        await g.answer(user("that is wrong"))
        first, second = g.turns()
        assert first["session_id"] != second["session_id"]
        assert second["parent_id"] is None
        assert next_states(g) == []


async def test_two_people_with_one_key_and_equal_openings_are_ambiguous_and_counted(gateway):
    async with gateway() as g:
        await converse(g, "Hi")
        messages = await converse(g, "Hi")
        await g.answer(*messages, user("That was rude."))
        first, second, third = g.turns()
        assert third["parent_id"] is None
        assert third["session_id"] not in (first["session_id"], second["session_id"])
        assert {first["fate"], second["fate"]} == {"ambiguous_parent"}
        assert next_states(g) == []
        assert 'links_total{outcome="ambiguous"} 1.0' in (await g.client.get("/metrics")).text


@pytest.mark.parametrize("separate", ["user", "key"])
async def test_user_field_and_key_separate_equal_openings(gateway, separate):
    async with gateway(keys=KEYS) as g:
        keys = ("sk-alice-1", "sk-bob-22" if separate == "key" else "sk-alice-1")
        users = ("u1", "u2" if separate == "user" else "u1")
        who = [
            {"headers": {"authorization": f"Bearer {key}"}, "user": name}
            for key, name in zip(keys, users, strict=True)
        ]
        await converse(g, "Hi", **who[0])
        messages = await converse(g, "Hi", **who[1])
        await g.answer(*messages, user("Thanks"), **who[1])
        first, second, third = g.turns()
        assert third["parent_id"] == second["turn_id"]
        assert first["state"] == "waiting"


@pytest.mark.parametrize(
    "where",
    [
        {"headers": {"x-session-id": "s"}},
        {"session_id": "s"},
        {"metadata": {"session_id": "s"}},
        {"headers": {"x-session-id": "s"}, "session_id": "other", "metadata": {"session_id": "z"}},
    ],
)
async def test_a_session_is_named_by_header_then_body_then_metadata(gateway, where):
    async with gateway() as g:
        await g.answer(HELLO, **where)
        await g.answer(user("another opening"), headers=named("s"))
        first, second = g.turns()
        assert first["session_id"] == second["session_id"]
        assert second["parent_id"] is None, "a session id alone names no parent"


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ({"headers": {"x-turn-type": "side"}}, "side"),
        ({"headers": {"x-turn-type": "SIDE"}}, "side"),
        ({"turn_type": "side"}, "side"),
        ({"metadata": {"turn_type": "side"}}, "side"),
        ({"headers": {"x-turn-type": "main"}, "turn_type": "side"}, "main"),
        ({}, "main"),
    ],
)
async def test_the_turn_type_is_read_from_header_then_body_then_metadata(gateway, where, kind):
    async with gateway() as g:
        await g.answer(HELLO, **where)
        (turn,) = g.turns()
        assert turn["turn_type"] == kind
        assert turn["fate"] == ("side" if kind == "side" else None)


async def test_a_side_request_is_no_next_state_of_the_answer_before_it(gateway):
    async with gateway() as g:
        messages = await converse(g, "Hi")
        await g.answer(*messages, user("Make a title."), headers={"x-turn-type": "side"})
        await g.answer(*messages, user("No, shorter!"))
        first = g.turns()[0]
        (state,) = next_states(g)
        assert b"shorter" in state["messages"]
        assert first["state"] == "judging"


async def test_the_same_request_again_replaces_the_earlier_turn_and_judges_nothing(gateway):
    async with gateway() as g:
        await g.answer(HELLO, headers=named("s"))
        await g.answer(HELLO, headers=named("s"))
        first, second = g.turns()
        assert first["superseded_by"] == second["turn_id"]
        assert (first["fate"], second["state"]) == ("superseded", "waiting")
        assert next_states(g) == []


async def test_without_session_id_only_a_retry_mark_replaces(gateway):
    async with gateway() as g:
        await g.answer(HELLO)
        await g.answer(HELLO)
        assert [turn["superseded_by"] for turn in g.turns()] == [None, None]


async def test_a_marked_retry_replaces_the_attempt_it_repeats(gateway):
    async with gateway() as g:
        g.engine.say("x", error=ContextLengthExceeded("first try fails"))
        await g.chat(HELLO, headers={"x-stainless-retry-count": "0"})
        g.engine.say("Paris.")
        await g.answer(HELLO, headers={"x-stainless-retry-count": "1"})
        first, second = g.turns()
        assert first["superseded_by"] == second["turn_id"]
        assert first["session_id"] == second["session_id"]


async def test_all_messages_after_the_answer_are_the_next_state(gateway):
    async with gateway() as g:
        messages = await converse(g, "Look twice")
        await g.answer(
            *messages,
            {"role": "tool", "tool_call_id": "a", "content": "error"},
            {"role": "tool", "tool_call_id": "b", "content": "ok"},
        )
        (state,) = next_states(g)
        assert b"error" in state["messages"]
        assert b"ok" in state["messages"]


@pytest.mark.parametrize("too_long", ["for the gateway", "for the engine"])
async def test_judging_is_queued_though_the_request_that_brought_the_next_state_fails(
    gateway, too_long
):
    async with gateway() as g:
        messages = await converse(g, "Hi")
        text = "No! " * (200 if too_long == "for the gateway" else 1)
        g.engine.say("x", error=ContextLengthExceeded("too long"))
        response = await g.chat(*messages, user(text))
        assert response.status_code == 400
        assert len(next_states(g)) == 1
        assert g.turns()[0]["state"] == "judging"


async def test_judging_is_queued_before_the_next_answer_is_sampled(gateway):
    async with gateway() as g:
        messages = await converse(g, "Hi")
        g.engine.say("x", gate=asyncio.Event())
        asking = asyncio.create_task(g.chat(*messages, user("No!")))
        await g.eventually(lambda: g.engine.running == 1)
        assert g.turns()[0]["state"] == "judging"
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_changed_system_text_keeps_the_link(gateway):
    async with gateway() as g:
        clock = {"role": "system", "content": "It is 10:00."}
        body = await g.answer(clock, HELLO)
        answer = bot(body["choices"][0]["message"]["content"])
        await g.answer({"role": "system", "content": "It is 10:05."}, HELLO, answer, user("No"))
        first, second = g.turns()
        assert second["parent_id"] == first["turn_id"]


async def test_the_reply_to_one_of_n_answers_is_linked_to_that_one(gateway):
    async with gateway() as g:
        g.engine.script = lambda r: Script(f"answer {r.sampling.seed}")
        await g.answer(HELLO, n=2, seed=0)
        await g.answer(HELLO, bot("answer 1"), user("Thanks"))
        first, second, third = g.turns()
        assert first["session_id"] == second["session_id"] == third["session_id"]
        assert third["parent_id"] == second["turn_id"]
        assert (first["state"], second["state"]) == ("waiting", "judging")


async def test_simultaneous_requests_of_one_session_all_succeed_in_order_of_arrival(gateway):
    async with gateway() as g:
        tasks = []
        for text in ("one", "two", "three"):
            tasks.append(asyncio.create_task(g.chat(user(text), headers=named("s"))))
            await asyncio.sleep(0)
        replies = await asyncio.gather(*tasks)
        assert [reply.status_code for reply in replies] == [200, 200, 200]
        turns = g.turns()
        assert len(turns) == 3
        assert len({turn["session_id"] for turn in turns}) == 1
        assert {turn["state"] for turn in turns} == {"waiting"}


async def test_the_recorded_ids_are_those_of_the_engine_call(gateway):
    async with gateway() as g:
        g.engine.say("Paris.")
        await g.answer(HELLO)
        (turn,) = g.turns()
        (request,) = g.engine.requests
        stored = g.journal.read_request(turn["turn_id"])
        assert list(stored.prompt_ids) == request.prompt_ids
        (row,) = g.rows("SELECT answer_ids, logprobs, versions FROM answers")
        from rejoinder.journal.columns import decode_ids, decode_logprobs, decode_versions

        ids = decode_ids(row["answer_ids"])
        assert ids == g.engine.tokenizer.encode("Paris.") + list(g.engine.tokenizer.eos_ids)
        assert decode_logprobs(row["logprobs"]) == [-0.5] * len(ids)
        (run,) = decode_versions(row["versions"])
        assert (run.version, run.count) == (3, len(ids))


async def test_a_turn_sampled_by_two_versions_keeps_the_version_of_each_token(gateway):
    async with gateway() as g:
        g.engine.say("abcd", versions=(1, 1, 2))
        await g.answer(HELLO)
        from rejoinder.journal.columns import decode_versions

        (row,) = g.rows("SELECT versions FROM answers")
        assert [(r.version, r.count) for r in decode_versions(row["versions"])] == [(1, 2), (2, 3)]


@pytest.mark.parametrize(
    ("settings", "body", "fate"),
    [
        ({}, {"temperature": 0.0}, "sampling_not_trainable"),
        ({}, {"top_p": 0.9}, "sampling_not_trainable"),
        ({}, {"frequency_penalty": 0.1}, "sampling_not_trainable"),
        ({}, {"logit_bias": {"1": 1}}, "sampling_not_trainable"),
        ({}, {"temperature": 0.6}, None),
        ({"train_truncated_sampling": True}, {"top_p": 0.9, "presence_penalty": 1}, None),
        ({"train_truncated_sampling": True}, {"top_p": 0.9, "logit_bias": {"1": 1}},
         "sampling_not_trainable"),
        ({"train_truncated_sampling": True}, {"temperature": 0.0}, "sampling_not_trainable"),
        ({"main_temperature": 0.7}, {"temperature": 0.0, "top_p": 0.5, "top_k": 3}, None),
    ],
)  # fmt: skip
async def test_sampling_that_cannot_train_is_served_and_recorded_so(gateway, settings, body, fate):
    async with gateway(**settings) as g:
        await g.answer(HELLO, **body)
        (turn,) = g.turns()
        assert turn["fate"] == fate


async def test_the_operators_temperature_is_for_main_turns_only(gateway):
    async with gateway(main_temperature=0.7) as g:
        await g.answer(HELLO, temperature=0.0, top_p=0.5)
        await g.answer(HELLO, temperature=0.0, top_p=0.5, turn_type="side")
        main, side = (request.sampling for request in g.engine.requests)
        assert (main.temperature, main.top_p) == (0.7, 1.0)
        assert (side.temperature, side.top_p) == (0.0, 0.5)


@pytest.mark.parametrize(
    "where",
    [
        {"headers": {"x-session-done": "true"}},
        {"session_done": True},
        {"metadata": {"session_done": "yes"}},
    ],
)
async def test_the_end_mark_closes_the_session_after_its_turn(gateway, where):
    async with gateway() as g:
        await g.answer(HELLO, **where)
        (session,) = g.rows("SELECT closed_at, close_reason FROM sessions")
        assert session["close_reason"] == "done"
        (turn,) = g.turns()
        assert turn["fate"] == "no_next_state"


async def test_a_reply_reopens_what_had_ended(gateway):
    async with gateway() as g:
        await g.answer(HELLO, session_done=True)
        await g.answer(HELLO, bot("Paris."), user("Wrong!"))
        first, second = g.turns()
        assert second["parent_id"] == first["turn_id"]
        assert first["state"] == "judging"


async def test_idle_sessions_are_closed(gateway):
    async with gateway(session_idle_s=0.01) as g:
        await g.answer(HELLO)
        await asyncio.sleep(0.05)
        await asyncio.wrap_future(g.journal.close_idle_sessions(0.01))
        (session,) = g.rows("SELECT close_reason FROM sessions")
        assert session["close_reason"] == "idle"


async def test_responses_name_session_turn_and_version(gateway):
    async with gateway() as g:
        response = await g.chat(HELLO)
        (turn,) = g.turns()
        assert response.headers["x-rejoinder-session-id"] == turn["session_id"]
        assert response.headers["x-rejoinder-turn-id"] == turn["turn_id"]
        assert response.headers["x-rejoinder-version"] == "default@3"
        assert response.json()["session_id"] == turn["session_id"]
        # A client may go on under the id it was given.
        await g.answer(HELLO, bot("Paris."), user("No"), headers=named(turn["session_id"]))
        first, second = g.turns()
        assert second["session_id"] == first["session_id"]
        assert second["parent_id"] == first["turn_id"]


async def test_turns_that_a_killed_gateway_left_open_are_ended_at_the_next_start(
    gateway, journal_url
):
    from rejoinder.gateway.heartbeat import owner_prefix
    from rejoinder.journal.sql import SqlJournal
    from rejoinder.types import Sampling, Scope, TurnType, new_id

    with SqlJournal(journal_url) as journal:
        turn = OpenTurn(
            turn_id=new_id(), session_id=new_id(), external_session=None,
            scope=Scope("default", "local"), policy="default", turn_type=TurnType.MAIN,
            parent_id=None, link_reason="", completion_id="c", choice=0, created_at=1.0,
            owner=f"{owner_prefix()}dead", messages=(), tools=None, prompt_ids=[1],
            request_chain=b"x", sampling=Sampling(5),
        )  # fmt: skip
        journal.open_turn(turn)
        journal.flush()
    async with gateway() as g:
        (row,) = g.turns()
        assert (row["state"], row["fate"]) == ("aborted", "process_killed")
