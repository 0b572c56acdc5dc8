"""OpenAI chat completions."""

from __future__ import annotations

from functools import partial

from rejoinder.chat.messages import BadMessages, normalise
from rejoinder.gateway.answer_format import AnswerFormat, named_format
from rejoinder.gateway.dialects.base import Opened, Reading
from rejoinder.gateway.dialects.chat_body import IGNORED, ChatBody, ResponseFormat
from rejoinder.gateway.dialects.chat_writer import ChatWriter
from rejoinder.gateway.dialects.fields import biases, stops
from rejoinder.gateway.errors import ApiError, from_messages
from rejoinder.gateway.json_body import check_count, convert, parse_object, without_effect
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.gateway.tool_choice import allowed_tools, parallel_ignored, wanted_call


class ChatCompletions:
    """See ``Dialect``."""

    path = "/v1/chat/completions"
    id_prefix = "chatcmpl-"
    body = ChatBody
    summary = "Create a chat completion"

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts

    def read(self, data: bytes, most: int) -> Reading:
        """See ``Dialect.read``."""
        raw = parse_object(data)
        body = convert(raw, ChatBody)
        _check(body)
        check_count(body.messages, most)
        request = _request(body)
        return Reading(
            request,
            without_effect(raw, ChatBody, IGNORED)
            + parallel_ignored(request.wanted_call, parallel=body.parallel_tool_calls),
            partial(self._writer, body),
        )

    def _writer(self, body: ChatBody, opened: Opened) -> ChatWriter:
        return ChatWriter(
            opened,
            self._texts,
            with_logprobs=bool(body.logprobs),
            with_usage=bool(body.stream_options and body.stream_options.include_usage),
        )

    def refusal(self, error: ApiError) -> tuple[int, bytes]:
        """See ``Dialect.refusal``."""
        return error.status, error.body()


def _check(body: ChatBody) -> None:
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "invalid_value", "top_logprobs needs logprobs: true", "top_logprobs")


def _format(asked: ResponseFormat | None) -> AnswerFormat | None:
    if asked is None:
        return None
    given = asked.json_schema
    return named_format(
        asked.type,
        None if given is None else given.schema,
        strict=bool(given and given.strict),
        param="response_format",
        schema_param="response_format.json_schema",
    )


def _request(body: ChatBody) -> TurnRequest:
    try:
        messages = normalise(body.messages)
    except BadMessages as error:
        raise from_messages(error) from error
    tools, choice = allowed_tools(body.tool_choice, body.tools or ())
    return TurnRequest(
        messages=messages,
        model=body.model,
        stream=bool(body.stream),
        choices=body.n or 1,
        tools=tools,
        wanted_call=wanted_call(choice, tools, parallel=body.parallel_tool_calls),
        answer_format=_format(body.response_format),
        template_options=body.chat_template_kwargs,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(body.top_k or 0, 0),
        min_p=body.min_p or 0.0,
        seed=body.seed,
        stop=stops(body.stop),
        frequency_penalty=body.frequency_penalty or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        logit_bias=biases(body.logit_bias),
        top_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        user=body.user or "",
        session_id=body.session_id,
        turn_type=body.turn_type,
        session_done=bool(body.session_done),
        metadata=body.metadata or {},
        prompt_cache_key=body.prompt_cache_key,
    )
