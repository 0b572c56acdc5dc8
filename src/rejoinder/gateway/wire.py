"""Bytes of chat completions: whole bodies and server-sent events.

An event's constant part is made once per answer; per token only its text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import orjson
from tokenizers import Tokenizer

from rejoinder.chat.families.events import (
    AnswerEvent,
    ArgumentsDelta,
    CallBegun,
    ContentDelta,
    ReasoningDelta,
)
from rejoinder.chat.token_bytes import TokenBytes
from rejoinder.engine.base import ClientLogprob
from rejoinder.gateway.capture import AnswerCapture, Piece
from rejoinder.gateway.errors import ApiError
from rejoinder.types import Json, Message, ToolCall

DONE = b"data: [DONE]\n\n"
LOWEST_LOGPROB = -9999.0
"""What JSON gets in place of minus infinity or NaN, as OpenAI writes it."""


class TokenTexts:
    """Log-probability entries in the API's form."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._bytes = TokenBytes(tokenizer)

    def entries(self, ids: Sequence[int], logprobs: Sequence[ClientLogprob]) -> list[Json]:
        """Return one entry per sampled token, the end token's included."""
        return [
            self._entry(id_, item.logprob)
            | {"top_logprobs": [self._entry(other, value) for other, value in item.top]}
            for id_, item in zip(ids, logprobs, strict=True)
        ]

    def _entry(self, id_: int, logprob: float) -> Json:
        data = self._bytes[id_]
        return {
            "token": data.decode("utf-8", "replace"),
            "logprob": logprob if math.isfinite(logprob) else LOWEST_LOGPROB,
            "bytes": list(data),
        }


def usage(answers: Sequence[AnswerCapture], prompt_tokens: int) -> Json:
    """Return the ``usage`` object: every sampled token counts, end tokens too."""
    completion = sum(len(answer.ids) for answer in answers)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt_tokens + completion,
        "prompt_tokens_details": {
            # Later answers of one request always find the prompt that the first one left.
            "cached_tokens": min((answer.cached_tokens for answer in answers), default=0)
        },
    }


class Completion:
    """Writes the answers of one request."""

    def __init__(
        self, id_: str, created: int, model: str, texts: TokenTexts, *, with_logprobs: bool
    ) -> None:
        self.id = id_
        self._created = created
        self._model = model
        self._texts = texts
        self._with_logprobs = with_logprobs
        self._heads: dict[int, bytes] = {}
        self._tail = b""

    def start(self, choices: int, fingerprint: str, *, with_usage: bool) -> None:
        """Prepare the constant parts of a stream's events."""
        common = self._common("chat.completion.chunk", fingerprint)
        head = b"data: " + orjson.dumps(common)[:-1] + b',"choices":[{"index":'
        self._heads = {i: head + b'%d,"delta":{' % i for i in range(choices)}
        # Where usage is asked for, every event but the last says that it has none.
        self._tail = b"}]" + (b',"usage":null}\n\n' if with_usage else b"}\n\n")

    def _common(self, kind: str, fingerprint: str) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": fingerprint,
        }

    def role_event(self, choice: int) -> bytes:
        """Return an answer's first event."""
        role = b'"content":"","role":"assistant"},"logprobs":null,"finish_reason":null'
        return self._heads[choice] + role + self._tail

    def piece_events(self, choice: int, piece: Piece) -> bytes:
        """Return the events of one piece; empty where there is nothing to tell.

        Log-probabilities of the piece's tokens are in its first event.
        """
        deltas = [delta for event in piece.events if (delta := _delta(event))]
        logprobs = b"null"
        if piece.logprobs:
            entries = self._texts.entries(piece.ids, piece.logprobs)
            logprobs = orjson.dumps({"content": entries, "refusal": None})
            deltas = deltas or [_delta(ContentDelta(""))]
        written: list[bytes] = []
        for delta in deltas:
            end = b'},"logprobs":' + logprobs + b',"finish_reason":null'
            written.append(self._heads[choice] + delta + end + self._tail)
            logprobs = b"null"
        return b"".join(written)

    def finish_event(self, answer: AnswerCapture, *, recorded: bool) -> bytes:
        """Return an answer's last event."""
        head = self._heads[answer.choice]
        reason = b'},"logprobs":null,"finish_reason":%b' % orjson.dumps(answer.told_reason)
        tail = self._tail if recorded else b'}],"recorded":false' + self._tail[2:]
        return head + reason + tail

    def usage_event(self, fingerprint: str, figures: Json) -> bytes:
        """Return the event with the usage and no choices."""
        common = self._common("chat.completion.chunk", fingerprint)
        return b"data: " + orjson.dumps({**common, "choices": [], "usage": figures}) + b"\n\n"

    def whole(
        self, answers: Sequence[AnswerCapture], fingerprint: str, figures: Json, extra: Json
    ) -> bytes:
        """Return the body of a response that is not streamed."""
        body = self._common("chat.completion", fingerprint)
        body["choices"] = [self._choice(answer) for answer in answers]
        body["usage"] = figures
        return orjson.dumps(body | extra)

    def _choice(self, answer: AnswerCapture) -> Json:
        logprobs: Any = None
        if self._with_logprobs:
            entries = self._texts.entries(answer.ids, answer.client)
            logprobs = {"content": entries, "refusal": None}
        return {
            "index": answer.choice,
            "message": _message(answer.message()),
            "logprobs": logprobs,
            "finish_reason": answer.told_reason,
        }


def _delta(event: AnswerEvent) -> bytes:
    """Return the inside of an event's ``delta``; empty for what only its order tells."""
    match event:
        case ContentDelta(text):
            return b'"content":' + orjson.dumps(text)
        case ReasoningDelta(text):
            return b'"reasoning_content":' + orjson.dumps(text)
        case CallBegun(index, id_, name):
            call: Json = {"index": index} | _call(ToolCall(id_, name, ""))
        case ArgumentsDelta(index, text):
            call = {"index": index, "function": {"arguments": text}}
        case _:
            return b""
    return b'"tool_calls":[' + orjson.dumps(call) + b"]"


def _message(message: Message) -> Json:
    """Return an answer in the API's form: content is null where it only calls tools."""
    calls = [_call(call) for call in message.tool_calls]
    made: Json = {
        "role": "assistant",
        "content": None if calls and not message.content else message.content,
        "refusal": None,
    }
    if message.reasoning is not None:
        made["reasoning_content"] = message.reasoning
    if calls:
        made["tool_calls"] = calls
    return made


def _call(call: ToolCall) -> Json:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def error_event(error: ApiError) -> bytes:
    """Return the event that ends a stream whose answer failed; no [DONE] follows."""
    return b"data: " + error.body() + b"\n\n"
