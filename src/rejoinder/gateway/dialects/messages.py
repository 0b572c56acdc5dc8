"""Anthropic Messages, and the counting of a prompt's tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import orjson

from rejoinder.chat.messages import BadMessages
from rejoinder.gateway.answer_format import AnswerFormat, json_schema, unknown_format
from rejoinder.gateway.dialects.base import Opened, Reading
from rejoinder.gateway.dialects.messages_blocks import read_messages
from rejoinder.gateway.dialects.messages_body import (
    IGNORED,
    CountBody,
    MessagesBody,
    Thinking,
)
from rejoinder.gateway.dialects.messages_tools import asked_call, shown_tools
from rejoinder.gateway.dialects.messages_writer import MessagesWriter, error_body
from rejoinder.gateway.errors import ApiError, from_messages
from rejoinder.gateway.json_body import check_count, convert, parse_object, without_effect
from rejoinder.gateway.request import MAX_USER_CHARS, TurnRequest
from rejoinder.types import Json

_SESSION_MARK = "_session_"
"""Parts the user from the session in the ids that Claude Code gave until version 2.1.77."""


class Messages:
    """See ``Dialect``."""

    path = "/v1/messages"
    id_prefix = "msg_"
    body = MessagesBody
    summary = "Create a message"

    def read(self, data: bytes, most: int) -> Reading:
        """See ``Dialect.read``."""
        raw = parse_object(data)
        body = convert(raw, MessagesBody)
        request = _request(body, most)
        ignored = without_effect(raw, MessagesBody, IGNORED)
        if request.wanted_call is None and body.tool_choice is not None:
            # Nothing holds an answer that need not be a call.
            told = body.tool_choice.disable_parallel_tool_use is not None
            ignored += ["disable_parallel_tool_use"] if told else []
        return Reading(request, ignored, partial(_writer, body), follows=True)

    def refusal(self, error: ApiError) -> tuple[int, bytes]:
        """See ``Dialect.refusal``."""
        return error.status, orjson.dumps(error_body(error))


def _format(body: MessagesBody) -> AnswerFormat | None:
    param, asked = "output_format", body.output_format
    if body.output_config is not None and body.output_config.format is not None:
        param, asked = "output_config.format", body.output_config.format
    if asked is None:
        return None
    if asked.type != "json_schema":
        raise unknown_format(asked.type, "'json_schema'", param)
    return json_schema(asked.schema, param, strict=True)


class CountTokens:
    """See ``Counting``."""

    path = "/v1/messages/count_tokens"
    body = CountBody
    summary = "Count the tokens of a message's prompt"

    def read(self, data: bytes, most: int) -> TurnRequest:
        """See ``Counting.read``."""
        return _prompt(convert(parse_object(data), CountBody), most)

    def counted(self, tokens: int) -> bytes:
        """See ``Counting.counted``."""
        return orjson.dumps({"input_tokens": tokens})

    def refusal(self, error: ApiError) -> tuple[int, bytes]:
        """See ``Dialect.refusal``."""
        return error.status, orjson.dumps(error_body(error))


def _writer(body: MessagesBody, opened: Opened) -> MessagesWriter:
    return MessagesWriter(opened, body.max_tokens)


def _request(body: MessagesBody, most: int) -> TurnRequest:
    metadata = body.metadata or {}
    return replace(
        _prompt(body, most),
        stream=bool(body.stream),
        max_tokens=body.max_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=body.top_k or 0,
        stop=tuple(body.stop_sequences or ()),
        answer_format=_format(body),
        user=_user(metadata.get("user_id")),
        session_id=body.session_id,
        turn_type=body.turn_type,
        session_done=bool(body.session_done),
        metadata=metadata,
    )


def _prompt(body: CountBody, most: int) -> TurnRequest:
    """Return the part of a request that its prompt is made of."""
    check_count(body.messages, most)
    try:
        messages = read_messages(body.system, body.messages)
    except BadMessages as error:
        raise from_messages(error) from error
    tools = shown_tools(body)
    return TurnRequest(
        messages=messages,
        model=body.model,
        tools=tools,
        wanted_call=asked_call(body.tool_choice, tools),
        template_options=_options(body.thinking),
    )


def _options(thinking: Thinking | None) -> Json | None:
    return None if thinking is None else {"enable_thinking": thinking.type != "disabled"}


def _user(user_id: object) -> str:
    """Return who asks: ``metadata.user_id`` without the session that Claude Code puts there.

    Left in, it would part the sessions of one person like those of strangers.
    """
    if user_id is None:
        return ""
    if not isinstance(user_id, str) or len(user_id) > MAX_USER_CHARS:
        text = f"user_id is a string of at most {MAX_USER_CHARS} characters"
        raise ApiError(400, "invalid_value", text, "metadata.user_id")
    if user_id.startswith("{"):
        try:
            parts = json.loads(user_id)
        except (ValueError, RecursionError):
            return user_id
        parts.pop("session_id", None)
        return json.dumps(parts, sort_keys=True)
    return user_id.partition(_SESSION_MARK)[0]
