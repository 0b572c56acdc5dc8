"""Frames survive any cut, and errors keep their class, status and code."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.engine import wire
from rejoinder.engine.base import ClientLogprob, GenerateRequest, TokenChunk
from rejoinder.errors import (
    ContextLengthExceeded,
    EngineBusy,
    EngineError,
    EngineTimeout,
    EngineUnavailable,
    InvalidRequest,
    UnknownVersion,
)
from rejoinder.types import FinishReason, Sampling

CHUNKS = [
    TokenChunk([1, 2], [-0.5, -1.25], 3, [ClientLogprob(-0.5, [(1, -0.5)]), ClientLogprob(-2.0)]),
    TokenChunk([7], [-0.1], 4, None, FinishReason.STOP, "END", 12),
    TokenChunk([], [], 4, None, FinishReason.LENGTH),
]


@given(st.lists(st.integers(0, 400), max_size=8))
def test_chunks_are_read_whole_however_the_bytes_arrive(cuts: list[int]):
    data = b"".join(wire.chunk_frame(chunk) for chunk in CHUNKS)
    borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = wire.FrameReader()
    found = [
        chunk
        for begin, end in itertools.pairwise(borders)
        for chunk in reader.feed(data[begin:end])
    ]
    assert found == CHUNKS


@pytest.mark.parametrize(
    "kind",
    [
        EngineError,
        EngineUnavailable,
        EngineBusy,
        EngineTimeout,
        InvalidRequest,
        ContextLengthExceeded,
        UnknownVersion,
    ],
)
def test_an_error_frame_raises_the_error_that_was_sent(kind: type[EngineError]):
    sent = kind("what to change")
    with pytest.raises(kind, match="what to change") as caught:
        list(wire.FrameReader().feed(wire.error_frame(sent)))
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.code) == (sent.status, sent.code)


def test_an_error_of_an_unknown_code_keeps_status_and_code():
    error = wire.decode_error(wire.encode(wire.WireError(418, "teapot", "short and stout")))
    assert (type(error), error.status, error.code) == (EngineError, 418, "teapot")


@pytest.mark.parametrize("data", [b"HTTP/1.1 200 OK\r\n", b"\x00\x00\x00\x00", b"\0\0\0\x02c\xff"])
def test_bytes_of_another_protocol_are_an_engine_error(data: bytes):
    with pytest.raises(EngineError):
        list(wire.FrameReader().feed(data))


def test_an_error_body_that_is_not_ours_is_still_an_engine_error():
    assert isinstance(wire.decode_error(b"<html>502</html>"), EngineError)


def test_requests_survive_the_way():
    sent = GenerateRequest(
        "r", [1, 2], Sampling(5, logit_bias={3: -1.5}, stop=("a", "b")), "default", version=2
    )
    assert msgspec.msgpack.decode(wire.encode(sent), type=GenerateRequest) == sent
