"""OpenAI responses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rejoinder.chat.messages import BadMessages
from rejoinder.gateway.answer_format import AnswerFormat, named_format
from rejoinder.gateway.dialects.base import Opened, Reading
from rejoinder.gateway.dialects.responses_body import IGNORED, LOGPROBS, REFUSED, ResponsesBody
from rejoinder.gateway.dialects.responses_input import read_input
from rejoinder.gateway.dialects.responses_tools import (
    Offered,
    asked_call,
    offered_tools,
    shown_tools,
)
from rejoinder.gateway.dialects.responses_writer import ResponseWriter, echoed
from rejoinder.gateway.errors import ApiError, from_messages
from rejoinder.gateway.json_body import check_count, convert, parse_object, without_effect
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.gateway.tool_choice import parallel_ignored
from rejoinder.types import Json, Message


class Responses:
    """See ``Dialect``."""

    path = "/v1/responses"
    id_prefix = "resp_"
    body = ResponsesBody
    summary = "Create a response"

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts

    def read(self, data: bytes, most: int) -> Reading:
        """See ``Dialect.read``."""
        raw = parse_object(data)
        _refuse(raw)
        body = convert(raw, ResponsesBody)
        if not isinstance(body.input, str):
            check_count(body.input, most)
        offered = offered_tools(body.tools or ())
        echo = echoed(body)
        request = _request(body, offered)
        return Reading(
            request,
            without_effect(raw, ResponsesBody, IGNORED)
            + _more_ignored(body, offered)
            + parallel_ignored(request.wanted_call, parallel=body.parallel_tool_calls),
            partial(self._writer, body, echo, offered.spaces),
            follows=True,
            by_token=True,
            common=(echo["instructions"], echo["tools"], echo["text"]),
        )

    def _writer(
        self,
        body: ResponsesBody,
        echo: Mapping[str, bytes],
        spaces: Mapping[str, str],
        opened: Opened,
    ) -> ResponseWriter:
        return ResponseWriter(opened, body, echo, self._texts, spaces)

    def refusal(self, error: ApiError) -> tuple[int, bytes]:
        """See ``Dialect.refusal``."""
        return error.status, error.body()


def _refuse(raw: Json) -> None:
    for name, instead in REFUSED.items():
        if raw.get(name):
            raise ApiError(400, "unsupported_parameter", f"{name} is not served: {instead}", name)


def _format(body: ResponsesBody) -> AnswerFormat | None:
    asked = body.text.format if body.text else None
    if asked is None:
        return None
    param = "text.format"
    return named_format(
        asked.type, asked.schema, strict=bool(asked.strict), param=param, schema_param=param
    )


def _more_ignored(body: ResponsesBody, offered: Offered) -> list[str]:
    included = ["include"] if set(body.include or ()) - {LOGPROBS} else []
    return [*included, "tools"] if offered.left_out else included


def _request(body: ResponsesBody, offered: Offered) -> TurnRequest:
    try:
        messages = read_input(body.input)
    except BadMessages as error:
        raise from_messages(error) from error
    wants_logprobs = body.top_logprobs or LOGPROBS in (body.include or ())
    own = (Message("system", body.instructions),) if body.instructions else ()
    tools = shown_tools(offered, body.tool_choice)
    return TurnRequest(
        messages=own + messages,
        continues=body.previous_response_id,
        own_messages=len(own),
        keep=body.store is not False,
        model=body.model,
        stream=bool(body.stream),
        tools=tools,
        wanted_call=asked_call(tools, body.tool_choice, parallel=body.parallel_tool_calls),
        answer_format=_format(body),
        template_options=body.chat_template_kwargs,
        max_tokens=body.max_output_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_logprobs=(body.top_logprobs or 0) if wants_logprobs else None,
        user=body.user or "",
        session_id=body.session_id,
        turn_type=body.turn_type,
        session_done=bool(body.session_done),
        metadata=body.metadata or {},
        prompt_cache_key=body.prompt_cache_key,
    )
