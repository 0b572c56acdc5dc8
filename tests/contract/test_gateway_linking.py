"""Real traffic through the gateway: what is linked, what is judged, and what is kept about why."""

from __future__ import annotations

import asyncio

import pytest
from gateway_kit import Script, bot, user

import openclaw_requests as oc
from rejoinder.gateway.identity import URL_SESSION
from rejoinder.journal.columns import decode_json

SESSION = "sess-abc-123"


def links(g) -> list[dict]:
    """The explanations of all turns, in order of arrival."""
    rows = g.rows(
        "SELECT link FROM prompts JOIN turns USING (turn_id) ORDER BY turns.created_at, choice"
    )
    return [decode_json(row["link"]) for row in rows]


def next_states(g) -> list[dict]:
    return g.rows("SELECT turn_id, child_id, kind, messages, outcome FROM next_states")


async def ask_as_openclaw(g, *messages, trace: str = "a") -> str:
    """Send a streamed request of OpenClaw's shape; returns its turn's id."""
    response = await g.client.post(
        "/v1/chat/completions", json=oc.body(*messages), headers=oc.headers(trace)
    )
    assert response.status_code == 200, response.text
    assert response.text.endswith("data: [DONE]\n\n")
    return response.headers["x-rejoinder-turn-id"]


async def long_context(g) -> None:
    """Make room for 40,000 characters at a token each."""
    g.engine.context_length = 100_000
    await g.service.probe_engine()


async def test_openclaws_reply_judges_the_answer_in_the_session_that_its_text_names(gateway):
    async with gateway() as g:
        await long_context(g)
        question = "What is the capital?"
        first = await ask_as_openclaw(
            g, oc.system(), oc.first_user(question, SESSION), oc.context()
        )
        second = await ask_as_openclaw(
            g,
            oc.system("NEXT"),
            oc.first_user(question, SESSION, clock="12:11"),
            bot("Paris."),
            user("[Sun 2026-11-29 12:11 UTC] Wrong!"),
            oc.context("1 running"),
        )
        (state,) = next_states(g)
        assert (state["turn_id"], state["child_id"], state["kind"]) == (first, second, "user")
        assert b"Wrong!" in state["messages"]
        assert b"OPENCLAW" not in state["messages"]
        (session,) = g.rows("SELECT external FROM sessions")
        assert session["external"] == SESSION
        opening, reply = links(g)
        assert opening["named_by"] == reply["named_by"] == "rule openclaw"
        assert opening["parent"]["rule"] == "first_request"
        assert reply["parent"] == {
            "rule": "last_answer", "why": "replies to the last answer", "turns": [first],
        }  # fmt: skip
        assert reply["next_state"] == {"messages": 1, "left_out": 1}


@pytest.mark.parametrize(
    ("beat", "opening"),
    [
        ("[Sun 2026-11-29 12:40 UTC] Read HEARTBEAT.md if it exists.", "read heartbeat.md"),
        (
            "Follow the heartbeat monitor scratch context when provided.\nCurrent time: now",
            "follow the heartbeat monitor",
        ),
    ],
    ids=["early 2026", "2026.9"],
)
async def test_openclaws_heartbeat_says_nothing_about_the_answer_before_it(gateway, beat, opening):
    async with gateway() as g:
        await long_context(g)
        history = [oc.first_user("Hi", SESSION), bot("Paris.")]
        await ask_as_openclaw(g, history[0], oc.context())
        await ask_as_openclaw(g, *history, user(beat), oc.context())
        assert next_states(g) == []
        await ask_as_openclaw(g, *history, user("Shorter!"), oc.context())
        first, heartbeat, reply = g.turns()
        assert (heartbeat["turn_type"], heartbeat["fate"]) == ("side", "side")
        assert links(g)[1]["type_by"] == f"opening {opening!r}"
        assert reply["parent_id"] == first["turn_id"]
        assert first["state"] == "judging"


@pytest.mark.parametrize(
    ("settings", "said", "kind"),
    [
        ({}, {}, "side"),
        ({}, {"turn_type": "main"}, "main"),
        ({"side_openings": ()}, {}, "main"),
        ({"side_openings": ("please generate",)}, {}, "side"),
    ],
    ids=["by its opening", "unless it says its type", "switched off", "own openings"],
)
async def test_a_call_for_a_title_in_the_conversation_is_a_side_turn(gateway, settings, said, kind):
    async with gateway(**settings) as g:
        await g.answer(user("Hi"))
        title = "Please generate a four to five word title summarizing our conversation"
        await g.answer(user("Hi"), bot("Paris."), user(title), **said)
        assert g.turns()[1]["turn_type"] == kind
        assert len(next_states(g)) == (kind == "main")


async def test_a_session_can_be_named_in_the_url_in_every_way_a_client_joins_it(gateway):
    async with gateway() as g:
        body = {"messages": [user("Hi")]}
        for name in ("my%20chat", "a/b", "a%2Fv1%2Fmodels"):
            path = f"/s/{name}/v1/chat/completions"
            response = await g.client.post(path, json=body)
            assert response.status_code == 200, response.text
        found = g.rows("SELECT external FROM sessions ORDER BY created_at")
        assert [row["external"] for row in found] == ["my chat", "a/b", "a/v1/models"]
        assert links(g)[0]["named_by"] == "URL"
        assert (await g.client.get("/s/x/v1/models")).status_code == 200
        completion = response.json()["id"]
        scored = {"completion_id": completion, "score": 1}
        assert (await g.client.post("/s/x/v1/feedback", json=scored)).status_code == 200


async def test_a_header_counts_more_than_the_url_and_the_url_more_than_the_body(gateway):
    async with gateway() as g:
        body = {"messages": [user("Hi")], "session_id": "from-body"}
        path = "/s/from-url/v1/chat/completions"
        await g.client.post(path, json=body)
        await g.client.post(path, json=body, headers={"x-session-id": "from-header"})
        found = g.rows("SELECT external FROM sessions ORDER BY created_at")
        assert [row["external"] for row in found] == ["from-url", "from-header"]


async def test_no_header_passes_for_the_url(gateway):
    async with gateway() as g:
        for name in {"x-rejoinder-url-session", URL_SESSION.decode()}:
            body = '{"messages": [{"role": "user", "content": "Hi"}]}'
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{name}: forged\r\n"
            tail = f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            host, port = g.base_url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write((head + tail).encode())  # clients refuse to send such a name
            await reader.read()
            writer.close()
        found = g.rows("SELECT external FROM sessions")
        assert {row["external"] for row in found} == {None}


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/s/v1/chat/completions", 404, "unknown_url"),
        ("/s//v1/chat/completions", 404, "unknown_url"),
        ("/s/x/v2/chat/completions", 404, "unknown_url"),
        (f"/s/{'x' * 257}/v1/chat/completions", 400, "invalid_value"),
        ("/s/%ff/v1/chat/completions", 400, "invalid_value"),  # else one session with %fe
    ],
)
async def test_a_url_that_names_no_session_is_refused(gateway, path, status, code):
    async with gateway() as g:
        response = await g.client.post(path, json={"messages": [user("Hi")]})
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)
        assert g.turns() == []


async def test_equal_agents_at_once_are_told_apart_by_their_traces(gateway):
    async with gateway() as g:
        g.engine.say("Paris.")
        for trace in ("a", "b"):
            await g.answer(user("go"), headers=oc.headers(trace))
        await g.answer(user("go"), bot("Paris."), user("No"), headers=oc.headers("b"))
        _, second, reply = g.turns()
        assert reply["parent_id"] == second["turn_id"]
        assert reply["session_id"] == second["session_id"]
        assert links(g)[2]["parent"]["rule"] == "last_answer_in_trace"


async def test_a_trace_alone_brings_no_conversations_together(gateway):
    async with gateway() as g:
        for text in ("one", "two"):
            await g.answer(user(text), headers=oc.headers("a"))
        first, second = g.turns()
        assert first["session_id"] != second["session_id"]
        assert second["parent_id"] is None


async def test_a_rule_of_the_operators_own_finds_the_session(gateway):
    from rejoinder.config import SessionRule

    rule = SessionRule(name="mine", look_in="metadata.chat", after=("chat-",))
    async with gateway(session_rules=(rule,)) as g:
        await g.answer(user("Hi"), metadata={"chat": "tenant-4 chat-77!"})
        await g.answer(user("Hi"), metadata={"chat": "something else"})
        named, derived = links(g)
        assert (named["named_by"], derived["named_by"]) == ("rule mine", None)
        assert g.rows("SELECT external FROM sessions ORDER BY created_at")[0]["external"] == "77"


async def test_each_of_n_answers_is_explained_by_the_completions_id(gateway):
    async with gateway() as g:
        g.engine.script = lambda request: Script(f"answer {request.sampling.seed}")
        said = await g.answer(user("Hi"), n=2, seed=0)
        await g.answer(user("Hi"), bot("answer 1"), user("Thanks"))
        g.journal.flush()
        first, second = g.journal.explain_turn(said["id"])
        assert (first["choice"], second["choice"]) == (0, 1)
        assert first["replies"] == []
        (reply,) = second["replies"]
        assert (reply["kind"], reply["messages"], reply["outcome"]) == ("user", 1, "queued")
        assert g.journal.explain_turn(reply["child"])[0]["parent"] == second["turn"]


async def test_an_explanation_is_kept_where_the_journal_could_not_be_read(gateway, monkeypatch):
    async with gateway() as g:
        await g.answer(user("Hi"))

        def broken(*_arguments: object) -> None:
            raise OSError("disk gone")

        monkeypatch.setattr(g.journal, "find_chains", broken)
        await g.answer(user("Hi"), bot("Paris."), user("No"))
        link = links(g)[1]
        assert link["parent"]["rule"] == "journal_failed"
        assert "disk gone" in link["parent"]["why"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_side_turn_that_says_the_same_takes_no_reply_from_a_main_one(gateway, path):
    async with gateway() as g:
        asked = {"messages": [user("Hi")], "prompt": "Hi", "max_tokens": 50, "turn_type": "side"}
        asked.pop("prompt" if "chat" in path else "messages")
        assert (await g.client.post(path, json=asked)).status_code == 200
        await g.answer(user("Hi"))
        await g.answer(user("Hi"), bot("Paris."), user("No"))
        _, main, reply = g.turns()
        assert reply["parent_id"] == main["turn_id"]
        assert main["state"] == "judging"
