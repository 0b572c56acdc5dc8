"""The events of a stream of Messages, in the order that clients rely on, and whole bodies."""

from __future__ import annotations

import json

import pytest

from rejoinder.chat.families.events import (
    ArgumentsDelta,
    CallBegun,
    CallEnded,
    ContentDelta,
    ReasoningDelta,
)
from rejoinder.engine.base import TokenChunk
from rejoinder.gateway.capture import AnswerCapture, Piece
from rejoinder.gateway.dialects.base import Opened
from rejoinder.gateway.dialects.messages_writer import MessagesWriter
from rejoinder.gateway.errors import ApiError
from rejoinder.types import FinishReason, Sampling

CALL = [
    CallBegun(0, "call_1", "f"),
    ArgumentsDelta(0, '{"a'),
    ArgumentsDelta(0, '": 1}'),
    CallEnded(0),
]


class Scripted:
    """A reader whose answer is what a test says."""

    def __init__(self, events: list, stop_string: str | None = None) -> None:
        self.events = events
        self.stop_string = stop_string

    def feed(self, ids, *, last=False):
        return self.events


def written(
    events: list,
    *,
    finish: FinishReason = FinishReason.STOP,
    max_tokens: int = 3,
    stop_string: str | None = None,
) -> tuple[MessagesWriter, Piece]:
    answer = AnswerCapture("t", 0, Scripted(events, stop_string))
    piece = answer.feed(TokenChunk([1, 2, 3], [-1.0] * 3, 0, None, finish, cached_tokens=4))
    writer = MessagesWriter(
        Opened("msg_1", 1, "m", "s", 9, [answer], Sampling(max_tokens=9)), max_tokens
    )
    return writer, piece


def parsed(data: bytes) -> list[dict]:
    found = []
    for event in data.decode().split("\n\n")[:-1]:
        name, body = event.split("\n")
        made = json.loads(body.removeprefix("data: "))
        assert name == f"event: {made['type']}", "an event has the name of its type"
        found.append(made)
    return found


def stream(events: list, **settings) -> list[dict]:
    writer, piece = written(events, **settings)
    return parsed(writer.begin("m@0") + writer.piece(0, piece) + writer.end(recorded=True))


def whole(events: list, *, recorded: bool = True, **settings) -> dict:
    writer, piece = written(events, **settings)
    writer.piece(0, piece)
    return json.loads(writer.whole("m@0", recorded=recorded))


def test_a_stream_of_text_has_the_events_of_the_api_to_the_letter():
    events = stream([ContentDelta('"Zü'), ContentDelta('rich"')])
    usage = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": 3,
    }
    assert events == [
        {"type": "message_start", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": '"Zü'}},
        {"type": "content_block_delta", "index": 0,
         "delta": {"type": "text_delta", "text": 'rich"'}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "usage": usage,
         "delta": {"stop_reason": "end_turn", "stop_sequence": None}},
        {"type": "message_stop"},
    ]  # fmt: skip


def test_each_kind_of_content_has_a_block_and_thoughts_are_signed_at_their_end():
    events = stream([ReasoningDelta("Hm."), ContentDelta("See."), *CALL, *CALL])[2:-2]
    kinds = [
        (event["type"].removeprefix("content_block_"), event["index"],
         event.get("delta", event.get("content_block", {})).get("type"))
        for event in events
    ]  # fmt: skip
    assert kinds == [
        ("start", 0, "thinking"), ("delta", 0, "thinking_delta"), ("delta", 0, "signature_delta"),
        ("stop", 0, None),
        ("start", 1, "text"), ("delta", 1, "text_delta"), ("stop", 1, None),
        ("start", 2, "tool_use"), ("delta", 2, "input_json_delta"),
        ("delta", 2, "input_json_delta"), ("stop", 2, None),
        ("start", 3, "tool_use"), ("delta", 3, "input_json_delta"),
        ("delta", 3, "input_json_delta"), ("stop", 3, None),
    ]  # fmt: skip
    begun = events[7]["content_block"]
    assert begun == {"type": "tool_use", "id": "call_1", "name": "f", "input": {}}
    assert "".join(event["delta"]["partial_json"] for event in events[8:10]) == '{"a": 1}'
    assert events[2]["delta"]["signature"]


def test_a_whole_body_holds_the_same_blocks_in_the_same_order():
    body = whole([ReasoningDelta("Hm."), ContentDelta("See."), *CALL, ContentDelta("Done.")])
    assert body["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "msg_1"},
        {"type": "text", "text": "See."},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
        {"type": "text", "text": "Done."},
    ]
    assert (body["stop_reason"], body["stop_sequence"]) == ("tool_use", None)
    assert body["usage"]["output_tokens"] == 3
    assert body["session_id"] == "s"
    assert "recorded" not in body


def test_arguments_that_are_no_object_are_kept_as_text():
    broken = [CallBegun(0, "c", "f"), ArgumentsDelta(0, '{"a": '), CallEnded(0)]
    assert whole(broken)["content"][0]["input"] == {"INVALID_JSON": '{"a": '}
    assert whole([CallBegun(0, "c", "f"), CallEnded(0)])["content"][0]["input"] == {}


@pytest.mark.parametrize(
    ("settings", "reason", "sequence"),
    [
        ({}, "end_turn", None),
        ({"finish": FinishReason.LENGTH}, "max_tokens", None),
        ({"finish": FinishReason.LENGTH, "max_tokens": 4}, "model_context_window_exceeded", None),
        ({"stop_string": "END"}, "stop_sequence", "END"),
    ],
)
def test_the_stop_reason_says_what_ended_the_answer(settings, reason, sequence):
    expected = {"stop_reason": reason, "stop_sequence": sequence}
    assert stream([ContentDelta("a")], **settings)[-2]["delta"] == expected
    assert expected.items() <= whole([ContentDelta("a")], **settings).items()


def test_an_answer_without_text_has_no_block():
    assert [event["type"] for event in stream([])] == [
        "message_start", "ping", "message_delta", "message_stop",
    ]  # fmt: skip
    assert whole([])["content"] == []


def test_what_is_not_recorded_is_said():
    writer, _ = written([])
    assert parsed(writer.end(recorded=False))[0]["recorded"] is False
    assert whole([], recorded=False)["recorded"] is False


def test_a_broken_stream_ends_with_an_error_event():
    writer, _ = written([])
    (event,) = parsed(writer.failed(ApiError(503, "engine_unavailable", "away")))
    assert event["error"]["type"] == "overloaded_error"
    assert event["error"]["message"] == "away"
