"""The events of a response stream in order and to the letter, and the object they end in.

All of them must be what the official client's own types say.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from rejoinder.chat.families.events import (
    ArgumentsDelta,
    CallBegun,
    CallEnded,
    ContentDelta,
    ReasoningDelta,
)
from rejoinder.engine.base import ClientLogprob
from rejoinder.gateway.capture import AnswerCapture, Piece
from rejoinder.gateway.dialects.base import Opened
from rejoinder.gateway.dialects.responses_body import ResponsesBody
from rejoinder.gateway.dialects.responses_tools import offered_tools
from rejoinder.gateway.dialects.responses_writer import ResponseWriter, echoed
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.types import FinishReason, Sampling

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
THOUGHTS = [Piece([ReasoningDelta("H")], [1], ()), Piece([ReasoningDelta("m.")], [2, 3], ())]
TEXT = [Piece([ContentDelta("Let ")], [4], ()), Piece([ContentDelta("me.")], [5], ())]
CALL = [
    Piece([CallBegun(0, "call_1", "f")], [6], ()),
    Piece([ArgumentsDelta(0, '{"a"')], [7], ()),
    Piece([ArgumentsDelta(0, ":1}"), CallEnded(0)], [8], ()),
]


class Told:
    """A writer and what it has written."""

    def __init__(self, texts: TokenTexts, **fields: Any) -> None:
        self.answer = AnswerCapture("t", 0, reader=None)  # type: ignore[arg-type]
        self.answer.finish_reason = FinishReason.STOP
        self.answer.ids = list(range(9))
        opened = Opened(
            "resp_1", 7, "m", "s", 5, [self.answer], Sampling(max_tokens=9, temperature=0.5)
        )
        body = ResponsesBody(input="Hi", **fields)
        self.writer = ResponseWriter(
            opened, body, echoed(body), texts, offered_tools(body.tools or ()).spaces
        )
        self.data = b""

    def stream(self, pieces: list[Piece]) -> list[dict[str, Any]]:
        """All events of a stream, each of the type that its line names, numbered from 0."""
        self.data = self.writer.begin("m@3")
        self.data += b"".join(self.writer.piece(0, piece) for piece in pieces)
        self.data += self.writer.end(recorded=True)
        return self.events()

    def events(self) -> list[dict[str, Any]]:
        *written, rest = self.data.split(b"\n\n")
        assert rest == b""
        made = []
        for number, lines in enumerate(written):
            name, data = lines.split(b"\n")
            event = orjson.loads(data.removeprefix(b"data: "))
            assert name == b"event: " + event["type"].encode()
            assert event["sequence_number"] == number
            _is_known(EVENT, event)
            made.append(event)
        return made

    def whole(self, pieces: list[Piece]) -> dict[str, Any]:
        """The body of a response that is not streamed."""
        assert all(self.writer.piece(0, piece) == b"" for piece in pieces)
        body = orjson.loads(self.writer.whole("m@3", recorded=True))
        _is_known(TypeAdapter(Response), body)
        return body


def _is_known(kind: TypeAdapter[Any], data: dict[str, Any]) -> None:
    """Data is of the client's type, and the type has all its fields but our own two."""
    read = kind.validate_python(data)
    ours = {"session_id", "system_fingerprint", "store", "recorded"}
    for part in (read, getattr(read, "response", read), getattr(read, "item", read)):
        assert set(part.model_extra or {}) <= ours


@pytest.fixture
def told(tiny_tokenizer):
    return lambda **fields: Told(TokenTexts(tiny_tokenizer.tokenizer), **fields)


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_text_alone_is_one_message_with_one_part(told):
    events = told().stream(TEXT)
    assert kinds(events) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.delta", "output_text.done", "content_part.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    id_ = events[2]["item"]["id"]
    assert id_.startswith("msg_")
    assert events[2]["item"] == {
        "id": id_, "type": "message", "status": "in_progress", "content": [], "role": "assistant",
    }  # fmt: skip
    empty = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
    place = {"item_id": id_, "output_index": 0, "content_index": 0}
    assert events[3] == place | {
        "type": "response.content_part.added", "part": empty, "sequence_number": 3,
    }  # fmt: skip
    assert events[4] == place | {
        "type": "response.output_text.delta", "delta": "Let ", "logprobs": [], "sequence_number": 4,
    }  # fmt: skip
    whole = {**empty, "text": "Let me."}
    assert events[6]["text"] == "Let me."
    assert events[7]["part"] == whole
    item = {**events[2]["item"], "status": "completed", "content": [whole]}
    assert events[8]["item"] == item
    assert events[9]["response"]["output"] == [item]


def test_thoughts_text_and_calls_are_items_in_their_order(told):
    events = told().stream(THOUGHTS + TEXT + CALL)
    assert kinds(events)[2:] == [
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    thoughts, text, call = events[-1]["response"]["output"]
    assert thoughts == {
        "id": thoughts["id"], "type": "reasoning", "status": "completed", "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
    }  # fmt: skip
    assert text["content"][0]["text"] == "Let me."
    assert call == {
        "id": call["id"], "type": "function_call", "status": "completed", "call_id": "call_1",
        "name": "f", "arguments": '{"a":1}',
    }  # fmt: skip
    assert [one["output_index"] for one in events if "item" in one] == [0, 0, 1, 1, 2, 2]
    done = events[-3]
    assert (done["item_id"], done["arguments"]) == (call["id"], '{"a":1}')


def test_each_call_is_an_item_of_its_own(told):
    second = [
        Piece([CallBegun(1, "call_2", "g"), ArgumentsDelta(1, "{}"), CallEnded(1)], [9], ()),
    ]
    for response in (
        told().stream(CALL + second)[-1]["response"],
        told().whole(CALL + second),
    ):
        calls = [(item["call_id"], item["name"], item["arguments"]) for item in response["output"]]
        assert calls == [("call_1", "f", '{"a":1}'), ("call_2", "g", "{}")]


def test_a_call_of_a_function_in_a_namespace_has_its_two_names(told):
    function = {"type": "function", "name": "stop", "parameters": None, "strict": None}
    space = {"type": "namespace", "name": "agents", "description": "Help.", "tools": [function]}
    call = [Piece([CallBegun(0, "call_1", "agents__stop"), CallEnded(0)], [1], ())]
    events = told(tools=[space]).stream(call)
    for item in (events[2]["item"], events[-1]["response"]["output"][0]):
        assert (item["namespace"], item["name"]) == ("agents", "stop")
    unknown = [Piece([CallBegun(0, "call_1", "agents__play"), CallEnded(0)], [1], ())]
    item = told(tools=[space]).whole(unknown)["output"][0]
    assert (item.get("namespace"), item["name"]) == (None, "agents__play")


def test_a_response_is_the_same_streamed_or_not(told):
    pieces = CALL + TEXT + THOUGHTS
    streamed, whole = told().stream(pieces)[-1]["response"], told().whole(pieces)
    for one in (streamed, whole):
        for item in one["output"]:
            item.pop("id")
    assert streamed == whole | {"completed_at": streamed["completed_at"]}
    assert [item["type"] for item in whole["output"]] == ["function_call", "message", "reasoning"]


def test_the_object_says_what_was_asked_and_how_it_was_sampled(told):
    tools = [{"type": "function", "name": "f", "parameters": None, "strict": None}]
    body = told(
        instructions="Be brief.",
        previous_response_id="resp_0",
        max_output_tokens=9,
        metadata={"a": "b"},
        tools=tools,
        temperature=1.5,
        user="bob",
    ).whole(THOUGHTS + TEXT)
    assert body["created_at"] == 7
    assert isinstance(body.pop("completed_at"), int)
    del body["output"]
    assert body == {
        "id": "resp_1", "object": "response", "created_at": 7, "status": "completed",
        "background": False, "error": None, "incomplete_details": None,
        "instructions": "Be brief.", "max_output_tokens": 9, "max_tool_calls": None,
        "metadata": {"a": "b"}, "model": "m", "parallel_tool_calls": True,
        "previous_response_id": "resp_0", "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None}, "safety_identifier": None,
        "service_tier": "default", "store": True, "temperature": 0.5,
        "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": tools,
        "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled",
        "usage": {
            "input_tokens": 5,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 14,
        },
        "user": "bob", "session_id": "s", "system_fingerprint": "m@3",
    }  # fmt: skip


def test_an_answer_cut_by_its_length_is_incomplete_in_its_last_item(told):
    one = told()
    one.answer.finish_reason = FinishReason.LENGTH
    events = one.stream(THOUGHTS + TEXT)
    assert events[-1]["type"] == "response.incomplete"
    response = events[-1]["response"]
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (response["status"], response["completed_at"]) == ("incomplete", None)
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]


@pytest.mark.parametrize(
    ("arguments", "status"), [('{"a":1}', "completed"), ('{"a"', "incomplete"), ("", "incomplete")]
)
def test_a_call_is_incomplete_where_the_answer_was_cut_inside_it(told, arguments, status):
    one = told()
    one.answer.finish_reason = FinishReason.LENGTH
    call = [CallBegun(0, "call_1", "f"), ArgumentsDelta(0, arguments), CallEnded(0)]
    events = one.stream([Piece(call, [1], ())])
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["output"][0]["status"] == status
    assert events[-2]["item"]["status"] == status


def test_an_answer_that_says_nothing_is_an_empty_message(told):
    body = told().whole([Piece([], [1], ())])
    assert [item["type"] for item in body["output"]] == ["message"]
    assert body["output"][0]["content"][0]["text"] == ""


def test_a_stream_that_breaks_off_ends_with_its_failure(told):
    one = told()
    one.data = one.writer.begin("m@3") + one.writer.piece(0, TEXT[0])
    one.data += one.writer.failed(ApiError(503, "engine_unavailable", "The engine went away."))
    last = one.events()[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {
        "code": "server_error", "message": "The engine went away.",
    }  # fmt: skip
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_an_answer_that_was_not_recorded_says_so(told):
    one = told()
    one.data = one.writer.begin("m@3") + one.writer.end(recorded=False)
    assert one.events()[-1]["response"]["recorded"] is False
    assert "recorded" not in orjson.loads(one.writer.whole("m@3", recorded=True))


def test_log_probabilities_are_those_of_the_visible_text(told):
    def piece(event: object, id_: int) -> Piece:
        return Piece([event] if event else [], [id_], [ClientLogprob(-0.5, [(id_, -0.5)])])  # type: ignore[list-item]

    pieces = [
        piece(ReasoningDelta("Hm."), 65),
        piece(None, 66),  # held back, shown with the next
        piece(ContentDelta("BC"), 67),
        piece(None, 0),  # the end token
    ]
    events = told().stream(pieces)
    (delta,) = (one for one in events if one["type"] == "response.output_text.delta")
    assert [entry["logprob"] for entry in delta["logprobs"]] == [-0.5, -0.5]
    assert len(delta["logprobs"][0]["top_logprobs"]) == 1
    message = events[-1]["response"]["output"][1]
    assert message["content"][0]["logprobs"] == delta["logprobs"]
