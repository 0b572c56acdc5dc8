"""The bytes of legacy completions: events have the form of whole bodies, offsets are characters."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai.types import Completion
from pydantic import TypeAdapter

from rejoinder.chat.families.events import ContentDelta
from rejoinder.engine.base import ClientLogprob
from rejoinder.gateway.capture import AnswerCapture, Piece
from rejoinder.gateway.dialects.base import Opened
from rejoinder.gateway.dialects.completions_writer import CompletionWriter, Logprobs
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.types import FinishReason, Sampling

COMPLETION: TypeAdapter[Any] = TypeAdapter(Completion)
HEAD = b'data: {"id":"c","object":"text_completion","created":1,"model":"m",'
FINGERPRINT = b'"system_fingerprint":"m@0",'


@pytest.fixture
def texts(tiny_tokenizer) -> TokenTexts:
    return TokenTexts(tiny_tokenizer.tokenizer)


def make(texts: TokenTexts, answers: int = 1, **asked: bool) -> CompletionWriter:
    made = [AnswerCapture("t", choice, reader=None) for choice in range(answers)]  # type: ignore[arg-type]
    for answer in made:
        answer.finish_reason = FinishReason.STOP
    opened = Opened("c", 1, "m", "s", 5, made, Sampling(max_tokens=9))
    return CompletionWriter(
        opened, texts, prompts=1, **{"with_logprobs": False, "with_usage": False, **asked}
    )


def said(text: str, *ids: int) -> Piece:
    return Piece([ContentDelta(text)] if text else [], ids, [ClientLogprob(-1.0, []) for _ in ids])


def test_a_stream_has_an_event_for_each_text_and_one_for_the_end(texts):
    writer = make(texts)
    assert writer.begin("m@0") == b""
    assert writer.piece(0, said('"a"')) == (
        HEAD + FINGERPRINT
        + b'"choices":[{"text":"\\"a\\"","index":0,"logprobs":null,"finish_reason":null}]}\n\n'
    )  # fmt: skip
    assert writer.piece(0, said("")) == b""
    assert writer.end(recorded=True) == (
        HEAD + FINGERPRINT
        + b'"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":"stop"}]}\n\n'
        + b"data: [DONE]\n\n"
    )  # fmt: skip


def test_usage_comes_last_and_is_null_before(texts):
    writer = make(texts, with_usage=True)
    data = writer.begin("m@0") + writer.piece(0, said("a")) + writer.end(recorded=True)
    *events, done, rest = data.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    bodies = [orjson.loads(event.removeprefix(b"data: ")) for event in events]
    assert [body["usage"] and body["usage"]["prompt_tokens"] for body in bodies] == [None, None, 5]
    assert bodies[-1]["choices"] == []


def test_a_whole_body_is_of_the_clients_type(texts):
    body = orjson.loads(make(texts, answers=2).whole("m@0", recorded=False))
    read = COMPLETION.validate_python(body)
    assert set(read.model_extra or {}) == {"session_id", "recorded"}
    assert [choice.index for choice in read.choices] == [0, 1]


def test_log_probabilities_come_with_the_tokens_they_are_of(texts, tiny_tokenizer):
    writer = make(texts, with_logprobs=True)
    ids = tiny_tokenizer.encode("né")
    made = orjson.loads(
        writer.piece(0, said("né", *ids)).removeprefix(b"data: ").removesuffix(b"\n\n")
    )
    logprobs = made["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["n", "bytes:\\xc3", "bytes:\\xa9"]
    assert logprobs["token_logprobs"] == [-1.0] * 3
    assert logprobs["text_offset"] == [0, 1, 1]


def test_offsets_go_on_from_piece_to_piece(texts, tiny_tokenizer):
    form = Logprobs(texts)
    for text, offsets in (("ab", [0, 1]), ("c", [2])):
        ids = tiny_tokenizer.encode(text)
        assert form.of(ids, [ClientLogprob(-1.0, []) for _ in ids])["text_offset"] == offsets


def test_the_likeliest_tokens_are_told_with_the_sampled_one(texts, tiny_tokenizer):
    sampled, other = tiny_tokenizer.encode("ab")
    made = Logprobs(texts).of([sampled], [ClientLogprob(-3.0, [(other, -0.5)])])
    assert made["top_logprobs"] == [{"b": -0.5, "a": -3.0}]


def test_events_of_several_answers_carry_their_numbers(texts):
    writer = make(texts, answers=2)
    data = writer.begin("m@0") + writer.piece(1, said("b")) + writer.piece(0, said("a"))
    indices = [event.split(b'"index":')[1][:1] for event in data.split(b"\n\n")[:-1]]
    assert indices == [b"1", b"0"]
