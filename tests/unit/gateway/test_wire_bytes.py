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
from rejoinder.gateway.capture import Piece
from rejoinder.gateway.wire import Completion, TokenTexts

HEAD = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"system_fingerprint":"m@0","choices":[{"index":0,"delta":{'
)
TAIL = b'},"logprobs":null,"finish_reason":null}]}\n\n'


@pytest.fixture
def completion(tiny_tokenizer) -> Completion:
    made = Completion("c", 1, "m", TokenTexts(tiny_tokenizer.tokenizer), with_logprobs=False)
    made.start(1, "m@0", with_usage=False)
    return made


def test_the_first_event_has_the_role(completion):
    assert completion.role_event(0) == HEAD + b'"content":"","role":"assistant"' + TAIL


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
def test_each_kind_of_event_has_its_delta(completion, event, delta):
    assert completion.piece_events(0, Piece([event], (), ())) == HEAD + delta.encode() + TAIL


def test_a_piece_with_several_events_writes_each_and_one_without_any_nothing(completion):
    piece = Piece([ReasoningDelta("a"), ContentDelta("b"), CallEnded(0)], (), ())
    written = completion.piece_events(0, piece)
    assert written == HEAD + b'"reasoning_content":"a"' + TAIL + HEAD + b'"content":"b"' + TAIL
    assert completion.piece_events(0, Piece((), (), ())) == b""
