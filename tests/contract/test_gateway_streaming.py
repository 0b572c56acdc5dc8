"""Streams: every token when it is sampled, whole characters, a clear end."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import httpx
import openai
import pytest
from gateway_kit import Running, Script, user

from rejoinder.errors import EngineUnavailable
from rejoinder.journal.sql import SqlJournal

HELLO = user("Capital of France?")


def texts(events, choice: int = 0) -> list[str]:
    """The pieces of text of one answer."""
    parts = [part for event in events[:-1] for part in event.json["choices"]]
    return [
        part["delta"]["content"]
        for part in parts
        if part["index"] == choice and "content" in part["delta"]
    ]


class Reader:
    """Reads a stream as it comes."""

    def __init__(self, g: Running, **body: object) -> None:
        made = {"model": "default", "messages": [HELLO], "stream": True, **body}
        self._context = g.client.stream("POST", "/v1/chat/completions", json=made)
        self.text = ""

    async def __aenter__(self) -> Reader:
        self.response = await self._context.__aenter__()
        self._lines = self.response.aiter_raw()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._context.__aexit__(*error)

    async def until(self, part: str) -> None:
        """Read until ``part`` has come."""
        async with asyncio.timeout(5):
            while part not in self.text:
                self.text += (await anext(self._lines)).decode()


async def test_a_stream_begins_with_the_role_and_ends_with_reason_and_done(gateway):
    async with gateway() as g:
        g.engine.say("Paris.")
        events = await g.events(HELLO)
        first, last = events[0].json, events[-2].json
        assert first["choices"][0]["delta"] == {"content": "", "role": "assistant"}
        assert last["choices"][0] == {
            "index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop",
        }  # fmt: skip
        assert events[-1].data == "[DONE]"
        assert "".join(texts(events)) == "Paris."
        assert {event.json["id"] for event in events[:-1]} == {first["id"]}
        assert first["object"] == "chat.completion.chunk"
        assert all("usage" not in event.json for event in events[:-1])


async def test_each_token_leaves_when_it_is_sampled(gateway):
    async with gateway() as g:
        gate = asyncio.Event()
        g.engine.say("ab", gate=gate, gate_after=1)
        async with Reader(g) as stream:
            await stream.until('"content":"a"')
            assert '"content":"b"' not in stream.text
            assert g.engine.running == 1
            gate.set()
            await stream.until("[DONE]")


async def test_usage_comes_once_on_request_without_choices(gateway):
    async with gateway() as g:
        g.engine.say("Paris.")
        events = await g.events(HELLO, stream_options={"include_usage": True})
        assert all(event.json["usage"] is None for event in events[:-2])
        last = events[-2].json
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == len("Paris.") + 1
        assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}


async def test_characters_of_several_tokens_come_whole(gateway):
    async with gateway() as g:
        g.engine.say("한국 👍🏽 né")
        pieces = texts(await g.events(HELLO))
        assert "".join(pieces) == "한국 👍🏽 né"
        assert not any("\ufffd" in piece for piece in pieces)
        assert (await g.answer(HELLO))["choices"][0]["message"]["content"] == "한국 👍🏽 né"


async def test_a_character_that_is_cut_off_becomes_one_replacement(gateway):
    async with gateway() as g:
        g.engine.say("é")
        assert "".join(texts(await g.events(HELLO, max_tokens=1))) == "\ufffd"


async def test_what_may_be_a_stop_string_is_held_back_until_it_is_none(gateway):
    async with gateway() as g:
        g.engine.say("a EN b END c")
        events = await g.events(HELLO, stop="END")
        assert "".join(texts(events)) == "a EN b "
        assert events[-2].json["choices"][0]["finish_reason"] == "stop"


async def test_an_unfinished_stop_string_at_the_end_is_text(gateway):
    async with gateway() as g:
        g.engine.say("a EN")
        assert "".join(texts(await g.events(HELLO, stop="END"))) == "a EN"


async def test_n_streams_are_interleaved_by_index(gateway):
    async with gateway() as g:
        g.engine.script = lambda r: Script(f"<{r.sampling.seed}>")
        events = await g.events(HELLO, n=2, seed=1)
        assert "".join(texts(events, 0)) == "<1>"
        assert "".join(texts(events, 1)) == "<2>"
        ends = [
            part["index"]
            for event in events[:-1]
            for part in event.json["choices"]
            if part["finish_reason"]
        ]
        assert ends == [0, 1]


async def test_streamed_logprobs_are_one_entry_per_token_whatever_text_is_held_back(gateway):
    async with gateway() as g:
        g.engine.say("é END")
        events = await g.events(
            HELLO, logprobs=True, stop="END", stream_options={"include_usage": True}
        )
        entries = [
            entry
            for event in events[:-1]
            for part in event.json["choices"]
            for entry in (part["logprobs"] or {"content": []})["content"]
        ]
        assert len(entries) == events[-2].json["usage"]["completion_tokens"]
        assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == "é END"


async def test_a_turn_is_durable_before_its_finish_reason_leaves(gateway, monkeypatch):
    async with gateway() as g:
        g.engine.say("Paris.")
        futures = []
        finish = g.journal.finish_turn

        def slow(turn):
            future: Future[None] = Future()
            futures.append((turn, future))
            return future

        monkeypatch.setattr(g.journal, "finish_turn", slow)
        async with Reader(g) as stream:
            await stream.until('"content":"."')
            await g.eventually(lambda: futures)
            await asyncio.sleep(0.05)
            assert 'finish_reason":"stop' not in stream.text
            ((turn, future),) = futures
            await asyncio.wrap_future(finish(turn))
            future.set_result(None)
            await stream.until("[DONE]")
            assert 'finish_reason":"stop' in stream.text


async def test_an_engine_failure_in_a_stream_is_an_error_event_and_no_done(gateway):
    async with gateway() as g:
        g.engine.say("Paris", error=EngineUnavailable("engine died"), error_after=3)
        events = await g.events(HELLO)
        assert events[-1].json["error"]["code"] == "engine_unavailable"
        assert "".join(texts(events)) == "Par"
        (turn,) = g.turns()
        assert (turn["state"], turn["fate"], turn["answer_tokens"]) == (
            "aborted", "engine_failed", 3,
        )  # fmt: skip
        (row,) = g.rows("SELECT error FROM answers")
        assert "engine died" in row["error"]


async def test_the_official_client_sees_a_broken_stream_as_an_error(gateway):
    async with gateway() as g:
        g.engine.say("Paris", error=EngineUnavailable("engine died"), error_after=3)
        async with openai.AsyncOpenAI(base_url=f"{g.base_url}/v1", api_key="x") as client:
            stream = await client.chat.completions.create(
                model="default", messages=[HELLO], stream=True
            )
            with pytest.raises(openai.APIError, match="engine died"):
                _ = [chunk async for chunk in stream]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_cancels_the_engine_and_is_recorded(gateway, stream):
    async with gateway() as g:
        g.engine.say("Paris", gate=asyncio.Event(), gate_after=2)
        body = {"model": "default", "messages": [HELLO], "stream": stream}
        async with httpx.AsyncClient(base_url=g.base_url) as leaving:
            asking = asyncio.create_task(leaving.post("/v1/chat/completions", json=body))
            await g.eventually(lambda: g.engine.running == 1)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await g.eventually(lambda: g.engine.running == 0, seconds=1.0)
        await g.eventually(lambda: g.turns()[0]["state"] == "aborted")
        (turn,) = g.turns()
        assert (turn["fate"], turn["answer_tokens"]) == ("client_gone", 2)
        await g.eventually(lambda: g.service.admission.active == 0)


async def test_a_time_out_in_a_stream_is_an_error_event(gateway):
    async with gateway(request_timeout_s=0.2) as g:
        g.engine.say("Paris", gate=asyncio.Event(), gate_after=2)
        events = await g.events(HELLO)
        assert events[-1].json["error"]["code"] == "timeout"
        (turn,) = g.turns()
        assert turn["fate"] == "timed_out"


async def test_one_failed_answer_of_several_ends_them_all(gateway):
    async with gateway() as g:
        g.engine.script = lambda r: (
            Script("x", gate=asyncio.Event(), gate_after=1)
            if r.sampling.seed == 1
            else Script("y", error=EngineUnavailable("gone"))
        )
        response = await g.chat(HELLO, n=2, seed=1)
        assert response.status_code == 503
        assert {turn["state"] for turn in g.turns()} == {"aborted"}
        assert g.engine.running == 0


async def test_stopping_the_gateway_ends_and_records_what_is_running(gateway, journal_url):
    async with httpx.AsyncClient(timeout=20) as staying:
        async with gateway() as g:
            g.engine.say("Paris", gate=asyncio.Event(), gate_after=2)
            body = {"model": "default", "messages": [HELLO], "stream": True}
            url = f"{g.base_url}/v1/chat/completions"
            asking = asyncio.create_task(staying.post(url, json=body))
            await g.eventually(lambda: g.engine.running == 1)
        await asyncio.gather(asking, return_exceptions=True)
    assert g.engine.running == 0
    with SqlJournal(journal_url) as journal, journal.database.connect() as connection:
        rows = connection.exec_driver_sql("SELECT state, fate, answer_tokens FROM turns").all()
    assert [tuple(row) for row in rows] == [("aborted", "process_killed", 2)]
