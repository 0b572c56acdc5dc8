"""Bytes of chat completions: whole bodies and server-sent events.

An event's constant part is made once per answer; per token only its text is escaped.
"""

from __future__ import annotations

from typing import Any

import orjson

from rejoinder.chat.families.events import (
    AnswerEvent,
    ArgumentsDelta,
    CallBegun,
    ContentDelta,
    ReasoningDelta,
)
from rejoinder.gateway.capture import AnswerCapture, Piece
from rejoinder.gateway.dialects.base import Opened
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.types import Json, Message, ToolCall

DONE = b"data: [DONE]\n\n"


def usage(opened: Opened, prompts: int = 1) -> Json:
    """Return the ``usage`` object: every sampled token counts, end tokens too."""
    completion = sum(len(answer.ids) for answer in opened.answers)
    cached = [answer.cached_tokens for answer in opened.answers]
    choices = len(cached) // prompts
    return {
        "prompt_tokens": opened.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": opened.prompt_tokens + completion,
        "prompt_tokens_details": {
            # Later answers to one prompt always find what the first one left.
            "cached_tokens": sum(
                min(cached[at : at + choices]) for at in range(0, len(cached), choices)
            )
        },
    }


class ChatWriter:
    """See ``Writer``."""

    def __init__(
        self, opened: Opened, texts: TokenTexts, *, with_logprobs: bool, with_usage: bool
    ) -> None:
        self._opened = opened
        self._texts = texts
        self._with_logprobs = with_logprobs
        self._with_usage = with_usage
        self._fingerprint = ""
        self._heads: dict[int, bytes] = {}
        self._tail = b""

    def begin(self, fingerprint: str) -> bytes:
        """Return each answer's first event, which has the role."""
        self._fingerprint = fingerprint
        common = self._common("chat.completion.chunk", fingerprint)
        head = b"data: " + orjson.dumps(common)[:-1] + b',"choices":[{"index":'
        choices = [answer.choice for answer in self._opened.answers]
        self._heads = {choice: head + b'%d,"delta":{' % choice for choice in choices}
        # Where usage is asked for, every event but the last says that it has none.
        self._tail = b"}]" + (b',"usage":null}\n\n' if self._with_usage else b"}\n\n")
        role = b'"content":"","role":"assistant"},"logprobs":null,"finish_reason":null'
        return b"".join(self._heads[choice] + role + self._tail for choice in choices)

    def _common(self, kind: str, fingerprint: str) -> Json:
        return {
            "id": self._opened.completion_id,
            "object": kind,
            "created": self._opened.created,
            "model": self._opened.model,
            "system_fingerprint": fingerprint,
        }

    def piece(self, choice: int, piece: Piece) -> bytes:
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

    def end(self, *, recorded: bool) -> bytes:
        """Return each answer's finish reason, then the usage if it was asked for."""
        events = [self._finish_event(answer, recorded=recorded) for answer in self._opened.answers]
        if self._with_usage:
            common = self._common("chat.completion.chunk", self._fingerprint)
            last = {**common, "choices": [], "usage": usage(self._opened)}
            events.append(b"data: " + orjson.dumps(last) + b"\n\n")
        return b"".join(events) + DONE

    def _finish_event(self, answer: AnswerCapture, *, recorded: bool) -> bytes:
        head = self._heads[answer.choice]
        reason = b'},"logprobs":null,"finish_reason":%b' % orjson.dumps(answer.told_reason)
        tail = self._tail if recorded else b'}],"recorded":false' + self._tail[2:]
        return head + reason + tail

    def failed(self, error: ApiError) -> bytes:
        """Return an event with the error; no [DONE] follows."""
        return b"data: " + error.body() + b"\n\n"

    def whole(self, fingerprint: str, *, recorded: bool) -> bytes:
        """Return the body of a response that is not streamed."""
        body = self._common("chat.completion", fingerprint)
        body["choices"] = [self._choice(answer) for answer in self._opened.answers]
        body["usage"] = usage(self._opened)
        body["session_id"] = self._opened.session_id
        if not recorded:
            body["recorded"] = False
        return orjson.dumps(body)

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
