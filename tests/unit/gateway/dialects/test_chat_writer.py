"""The bytes of a stream's events, to the letter: programs parse them that we do not know."""

from __future__ import annotations

import pytest

from rejoinder.chat.families.events import (
    ArgumentsDelta,
    CallBegun,
    CallEnded,
    ContentDelta,
    ReasoningDelta,
)
from rejoinder.gateway.capture import AnswerCapture, Piece
from rejoinder.gateway.dialects.base import Opened
from rejoinder.gateway.dialects.chat_writer import ChatWriter
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.types import Sampling

HEAD = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"system_fingerprint":"m@0","choices":[{"index":0,"delta":{'
)
TAIL = b'},"logprobs":null,"finish_reason":null}]}\n\n'


@pytest.fixture
def writer(tiny_tokenizer) -> ChatWriter:
    answer = AnswerCapture("t", 0, reader=None)  # type: ignore[arg-type]
    made = ChatWriter(
        Opened("c", 1, "m", "s", 5, [answer], Sampling(max_tokens=9)),
        TokenTexts(tiny_tokenizer.tokenizer),
        with_logprobs=False,
        with_usage=False,
    )
    assert made.begin("m@0") == HEAD + b'"content":"","role":"assistant"' + TAIL
    return made


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        (ContentDelta('"Zürich"'), '"content":"\\"Zürich\\""'),
        (ReasoningDelta("Hm."), '"reasoning_content":"Hm."'),
        (
            CallBegun(1, "call_1", "f"),
            (
                '"tool_calls":[{"index":1,"id":"call_1","type":"function",'
                '"function":{"name":"f","arguments":""}}]'
            ),
        ),
        (ArgumentsDelta(1, '{"a'), '"tool_calls":[{"index":1,"function":{"arguments":"{\\"a"}}]'),
    ],
)
def test_each_kind_of_event_has_its_delta(writer, event, delta):
    assert writer.piece(0, Piece([event], (), ())) == HEAD + delta.encode() + TAIL


def test_a_piece_with_several_events_writes_each_and_one_without_any_nothing(writer):
    piece = Piece([ReasoningDelta("a"), ContentDelta("b"), CallEnded(0)], (), ())
    written = writer.piece(0, piece)
    assert written == HEAD + b'"reasoning_content":"a"' + TAIL + HEAD + b'"content":"b"' + TAIL
    assert writer.piece(0, Piece((), (), ())) == b""
