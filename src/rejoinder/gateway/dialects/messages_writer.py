"""Bytes of Anthropic Messages: whole bodies, and events in which each content block has its own."""

from __future__ import annotations

from dataclasses import dataclass, field

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
from rejoinder.gateway.dialects.messages_blocks import tool_input
from rejoinder.gateway.errors import ApiError
from rejoinder.types import FinishReason, Json

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of content block."""

    block: Json
    """What its first event shows."""
    delta: bytes
    """The beginning of each delta; its text follows."""
    field: str
    """Where a whole block has its text."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A content block that has begun."""

    kind: _Kind
    more: Json
    """What its kind alone does not say."""
    texts: list[str] = field(default_factory=list)


_TEXT = _Kind({"type": "text", "text": ""}, b'{"type":"text_delta","text":', "text")
_THOUGHTS = _Kind(
    {"type": "thinking", "thinking": "", "signature": ""},
    b'{"type":"thinking_delta","thinking":',
    "thinking",
)
_CALL = _Kind({"type": "tool_use"}, b'{"type":"input_json_delta","partial_json":', "input")
_DELTA_END = b"}}\n\n"


class MessagesWriter:
    """See ``Writer``. There is one answer, whose blocks it collects in their order."""

    def __init__(self, opened: Opened, max_tokens: int) -> None:
        """``max_tokens``: as many as the client asked for."""
        self._opened = opened
        (self._answer,) = opened.answers
        self._max_tokens = max_tokens
        self._blocks: list[_Block] = []
        self._open: _Kind | None = None
        self._head = b""

    def begin(self, fingerprint: str) -> bytes:  # noqa: ARG002 - the API has no place for it
        """Return the message without content, and a ping as official servers send one."""
        message = self._message([]) | {"stop_reason": None, "stop_sequence": None}
        start = {"type": "message_start", "message": message}
        return _event(start) + _event({"type": "ping"})

    def piece(self, choice: int, piece: Piece) -> bytes:  # noqa: ARG002 - there is one answer
        """Return the events of one piece."""
        return b"".join([self._written(event) for event in piece.events])

    def _written(self, event: AnswerEvent) -> bytes:
        match event:
            case ContentDelta(text):
                return self._more(_TEXT, text)
            case ReasoningDelta(text):
                return self._more(_THOUGHTS, text)
            case CallBegun(_, id_, name):
                return self._start(_CALL, {"id": id_, "name": name, "input": {}})
            case ArgumentsDelta(_, text):
                return self._more(_CALL, text)
            case _:
                return self._stop()

    def _more(self, kind: _Kind, text: str) -> bytes:
        started = b"" if self._open is kind else self._start(kind, {})
        self._blocks[-1].texts.append(text)
        return started + self._head + orjson.dumps(text) + _DELTA_END

    def _start(self, kind: _Kind, more: Json) -> bytes:
        stopped = self._stop()
        self._open = kind
        index = len(self._blocks)
        self._blocks.append(_Block(kind, more))
        common = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":'
        self._head = common + b'%d,"delta":' % index + kind.delta
        block: Json = {"type": "content_block_start", "index": index}
        block["content_block"] = kind.block | more
        return stopped + _event(block)

    def _stop(self) -> bytes:
        """Return the end of the open block, if one is open."""
        kind, self._open = self._open, None
        if kind is None:
            return b""
        stop = {"type": "content_block_stop", "index": len(self._blocks) - 1}
        return (self._signature() if kind is _THOUGHTS else b"") + _event(stop)

    def _signature(self) -> bytes:
        delta = {"type": "signature_delta", "signature": self._opened.completion_id}
        event = {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}
        return _event(event)

    def end(self, *, recorded: bool) -> bytes:
        """Return the stop reason with the usage, and the end."""
        last: Json = {
            "type": "message_delta",
            "delta": _stop(self._answer, self._max_tokens),
            "usage": self._usage(),
        }
        if not recorded:
            last["recorded"] = False
        return self._stop() + _event(last) + _event({"type": "message_stop"})

    def failed(self, error: ApiError) -> bytes:
        """Return an ``error`` event; nothing follows."""
        return _event(error_body(error))

    def whole(self, fingerprint: str, *, recorded: bool) -> bytes:  # noqa: ARG002 - as in ``begin``
        """Return the body of a response that is not streamed."""
        content = [self._content(block) for block in self._blocks]
        body = self._message(content) | _stop(self._answer, self._max_tokens)
        body["session_id"] = self._opened.session_id
        if not recorded:
            body["recorded"] = False
        return orjson.dumps(body)

    def _content(self, block: _Block) -> Json:
        """Return a whole block."""
        text: object = "".join(block.texts)
        made = block.kind.block | block.more
        if block.kind is _CALL:
            text = orjson.Fragment(tool_input("".join(block.texts)))
        elif block.kind is _THOUGHTS:
            made["signature"] = self._opened.completion_id
        return made | {block.kind.field: text}

    def _message(self, content: list[Json]) -> Json:
        return {
            "id": self._opened.completion_id,
            "type": "message",
            "role": "assistant",
            "model": self._opened.model,
            "content": content,
            "usage": self._usage(),
        }

    def _usage(self) -> Json:
        cached = self._answer.cached_tokens
        return {  # the API counts the parts of a prompt apart
            "input_tokens": self._opened.prompt_tokens - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": len(self._answer.ids),
        }


def _stop(answer: AnswerCapture, max_tokens: int) -> Json:
    reason, matched = "end_turn", None
    if answer.told_reason == "tool_calls":
        reason = "tool_use"
    elif answer.finish_reason is FinishReason.LENGTH:
        full = len(answer.ids) < max_tokens  # the context, not the client, ended it
        reason = "model_context_window_exceeded" if full else "max_tokens"
    elif answer.stop_string is not None:
        reason, matched = "stop_sequence", answer.stop_string
    return {"stop_reason": reason, "stop_sequence": matched}


def error_body(error: ApiError) -> Json:
    """Return a refusal in the API's form; our own code and field stand in its details."""
    default = "api_error" if error.status >= 500 else "invalid_request_error"
    message = error.message
    if error.param is not None and not message.startswith(error.param):
        message = f"{error.param}: {message}"
    details = {"error_code": error.code, "param": error.param}
    kind = _TYPES.get(error.status, default)
    return {"type": "error", "error": {"type": kind, "message": message, "details": details}}


def _event(data: Json) -> bytes:
    """Return an event, which has the name of its type."""
    return b"event: %b\ndata: %b\n\n" % (data["type"].encode(), orjson.dumps(data))
