"""A journal that fails: nobody is refused, nothing is hidden."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import Future

from gateway_kit import bot, user
from sqlalchemy.engine import Connection

from rejoinder.errors import JournalError
from rejoinder.gateway import heartbeat
from rejoinder.gateway.heartbeat import beat
from rejoinder.journal.capture import TurnGroup
from rejoinder.journal.records import FinishedTurn, OpenTurn

HELLO = user("Capital of France?")


def failed(*_: object) -> Future[None]:
    future: Future[None] = Future()
    future.set_exception(JournalError("disk full"))
    return future


async def test_an_answer_that_cannot_be_recorded_is_delivered_marked_and_counted(
    gateway, monkeypatch
):
    async with gateway() as g:
        with monkeypatch.context() as broken:
            broken.setattr(g.journal, "finish_turn", failed)
            broken.setattr(g.journal, "close_idle_sessions", failed)
            body = await g.answer(HELLO)
            assert body["choices"][0]["message"]["content"] == "Paris."
            assert body["recorded"] is False
            events = await g.events(HELLO)
            assert events[-2].json["recorded"] is False
            ready = await g.client.get("/readyz")
            assert ready.status_code == 503
            assert "disk full" in ready.json()["missing"]["journal"]
            assert "unrecorded_turns_total 2.0" in (await g.client.get("/metrics")).text
        assert "recorded" not in await g.answer(HELLO)
        assert (await g.client.get("/readyz")).status_code == 200


async def test_a_write_that_was_asked_for_before_the_failure_does_not_hide_it(gateway, monkeypatch):
    async with gateway() as g:
        slow: Future[int] = Future()
        with monkeypatch.context() as broken:
            broken.setattr(g.journal, "close_idle_sessions", lambda _: slow)
            beating = asyncio.create_task(beat(g.service))
            await asyncio.sleep(0)
            broken.setattr(g.journal, "finish_turn", failed)
            broken.setattr(g.journal, "close_idle_sessions", failed)  # of the gateway's own beat
            assert (await g.answer(HELLO))["recorded"] is False
            slow.set_result(0)
            for _ in range(5):
                await asyncio.sleep(0)
            assert (await g.client.get("/readyz")).status_code == 503
        beating.cancel()


async def test_feedback_that_cannot_be_recorded_is_refused_for_now(gateway, monkeypatch):
    async with gateway() as g:
        body = await g.answer(HELLO)
        monkeypatch.setattr(g.journal, "add_feedback", failed)
        response = await g.client.post(
            "/v1/feedback", json={"completion_id": body["id"], "thumb": "up"}
        )
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "journal_unavailable"
        assert "retry-after" in response.headers


async def test_a_journal_that_refuses_the_opening_row_does_not_refuse_the_client(
    gateway, monkeypatch
):
    async with gateway() as g:

        def full(_turn: OpenTurn) -> None:
            raise JournalError("20000 writes wait")

        monkeypatch.setattr(g.journal, "open_turn", full)
        body = await g.answer(HELLO)
        assert body["recorded"] is False


async def test_a_journal_that_cannot_be_read_links_nothing_and_serves(gateway, monkeypatch):
    async with gateway() as g:
        messages = [HELLO, bot((await g.answer(HELLO))["choices"][0]["message"]["content"])]

        def broken(*_: object) -> list[object]:
            raise JournalError("no such table")

        monkeypatch.setattr(g.journal, "find_chains", broken)
        await g.answer(*messages, user("No!"))
        assert g.turns()[1]["parent_id"] is None
        assert 'links_total{outcome="journal_failed"} 1.0' in (await g.client.get("/metrics")).text


async def test_an_answer_whose_conversation_is_deleted_meanwhile_is_marked_and_the_journal_is_well(
    gateway, monkeypatch
):
    async with gateway() as g:
        finish = g.journal.finish_turn

        def too_late(turn: FinishedTurn) -> Future[None]:
            g.journal.flush()
            g.journal.delete_sessions(g.journal.find_sessions([]))
            return finish(turn)

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(g.journal, "finish_turn", too_late)
            body = await g.answer(HELLO)
        assert body["choices"][0]["message"]["content"] == "Paris."
        assert body["recorded"] is False
        assert (await g.client.get("/readyz")).status_code == 200
        assert g.turns() == []
        g.service.recorder.flush_counts()
        g.journal.flush()
        counters = g.journal.status("default", 4)["counters"]["gateway"]
        assert counters["deleted_meanwhile"] == {"finish": 1}
        assert "journal_failed" not in counters


async def test_a_deleted_session_that_its_client_goes_on_with_is_a_new_conversation(gateway):
    async with gateway() as g:
        named = {"X-Session-Id": "mine"}
        said = (await g.answer(HELLO, headers=named))["choices"][0]["message"]["content"]
        g.journal.delete_sessions(g.journal.find_sessions(["mine"]))
        again = await g.answer(HELLO, bot(said), user("No!"), headers=named)
        assert "recorded" not in again
        (turn,) = g.turns()
        assert turn["parent_id"] is None
        assert g.journal.find_sessions(["mine"]) == [turn["session_id"]]


async def test_what_follows_from_an_opening_that_was_lost_names_the_first_cause(
    gateway, monkeypatch
):
    async with gateway() as g:
        apply = TurnGroup.apply

        def full(group: TurnGroup, connection: Connection) -> None:
            if group._turns:
                raise sqlite3.OperationalError("database or disk is full")
            apply(group, connection)

        finish = g.journal.finish_turn

        def later(turn: FinishedTurn) -> Future[None]:
            g.journal.flush()  # or both would be written in one
            return finish(turn)

        with monkeypatch.context() as broken:
            broken.setattr(TurnGroup, "apply", full)
            broken.setattr(g.journal, "finish_turn", later)
            assert (await g.answer(HELLO))["recorded"] is False
            problem = (await g.client.get("/readyz")).json()["missing"]["journal"]
        assert "its opening could not be written: the journal's disk is full" in problem


async def test_a_journal_whose_file_was_deleted_is_told_within_a_heartbeat(gateway, monkeypatch):
    monkeypatch.setattr(heartbeat, "HEARTBEAT_S", 0.05)
    async with gateway() as g:
        assert "recorded" not in await g.answer(HELLO)
        g.journal.database.path.unlink()

        async def told() -> str:
            ready = await g.client.get("/readyz")
            return "" if ready.status_code == 200 else ready.json()["missing"]["journal"]

        async with asyncio.timeout(10):
            while not (problem := await told()):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        assert "it was deleted or moved away. Nothing is recorded. Stop the system" in problem
        body = await g.answer(HELLO)
        assert body["choices"][0]["message"]["content"] == "Paris."
        assert body["recorded"] is False
        assert "unrecorded_turns_total 1.0" in (await g.client.get("/metrics")).text
        assert "deleted or moved away" in await told()
