"""What a response is written as: the response object, and the numbered events of a stream."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec
import orjson

from rejoinder.gateway.capture import Piece
from rejoinder.gateway.dialects.base import Opened
from rejoinder.gateway.dialects.responses_body import ResponsesBody, ResponseTextFormat
from rejoinder.gateway.dialects.responses_output import Output
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.types import FinishReason, Json

_CODES = {429: "rate_limit_exceeded", 400: "invalid_prompt"}
"""What this API calls a failure, by its status; the others are ``server_error``."""


def echoed(body: ResponsesBody) -> dict[str, bytes]:
    """Return the fields that a response only gives back, written once for all its events as JSON.

    Raises:
        RecursionError: they are nested too deeply.
    """
    fields: Json = {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "text": {"format": (body.text and body.text.format) or ResponseTextFormat("text")},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
    }
    # Not by orjson, which knows neither large numbers nor deep nesting.
    return {name: msgspec.json.encode(value) for name, value in fields.items()}


class ResponseWriter:
    """See ``Writer``. A response has one answer."""

    def __init__(
        self,
        opened: Opened,
        body: ResponsesBody,
        echo: Mapping[str, bytes],
        texts: TokenTexts,
        spaces: Mapping[str, str],
    ) -> None:
        """``echo``: what ``echoed`` has made of the body; ``spaces``: see ``Offered``."""
        self._opened = opened
        self._body = body
        self._echo = {name: orjson.Fragment(text) for name, text in echo.items()}
        self._texts = texts
        self._fingerprint = ""
        self._number = 0
        self._streams = False
        self._written: list[bytes] = []
        self._output = Output(self._tell, spaces)
        self._complete: Json | None = None

    def begin(self, fingerprint: str) -> bytes:
        """See ``Writer.begin``."""
        self._streams = True
        self._fingerprint = fingerprint
        self._tell("response.created", {"response": self._response("in_progress")})
        self._tell("response.in_progress", {"response": self._response("in_progress")})
        return self._take()

    def piece(self, choice: int, piece: Piece) -> bytes:  # noqa: ARG002 - there is one answer
        """See ``Writer.piece``; no bytes where the response is not streamed."""
        entries = self._texts.entries(piece.ids, piece.logprobs) if piece.logprobs else ()
        self._output.add(piece, entries)
        return self._take()

    def end(self, *, recorded: bool) -> bytes:
        """See ``Writer.end``."""
        response = self._finished(recorded=recorded)
        self._tell(f"response.{response['status']}", {"response": response})
        return self._take()

    def failed(self, error: ApiError) -> bytes:
        """See ``Writer.failed``."""
        self._output.cut()
        code = _CODES.get(error.status, "server_error")
        response = self._response("failed") | {"error": {"code": code, "message": error.message}}
        self._tell("response.failed", {"response": response})
        return self._take()

    def whole(self, fingerprint: str, *, recorded: bool) -> bytes:
        """See ``Writer.whole``."""
        self._fingerprint = fingerprint
        return orjson.dumps(self._finished(recorded=recorded))

    # --- parts --------------------------------------------------------------------------------

    def _tell(self, type_: str, fields: Json) -> None:
        if not self._streams:
            return
        event = orjson.dumps({"type": type_, **fields, "sequence_number": self._number})
        self._number += 1
        self._written.append(b"event: %b\ndata: %b\n\n" % (type_.encode(), event))

    def _take(self) -> bytes:
        data = b"".join(self._written)
        self._written.clear()
        return data

    def _finished(self, *, recorded: bool) -> Json:
        """Return the complete response; the first call ends its last item."""
        if self._complete is None:
            whole = self._opened.answers[0].finish_reason is not FinishReason.LENGTH
            status = "completed" if whole else "incomplete"
            self._output.finish(status)
            self._complete = self._response(status) | {"usage": self._usage()}
            if whole:
                self._complete["completed_at"] = int(time.time())
            else:
                self._complete["incomplete_details"] = {"reason": "max_output_tokens"}
        return self._complete if recorded else self._complete | {"recorded": False}

    def _response(self, status: str) -> Json:
        """Return the response as it stands. What it says of sampling is what was done."""
        opened, body = self._opened, self._body
        return {
            "id": opened.completion_id,
            "object": "response",
            "created_at": opened.created,
            "status": status,
            "background": False,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "max_tool_calls": None,
            "model": opened.model,
            "output": self._output.items(),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "prompt_cache_key": body.prompt_cache_key,
            "reasoning": {"effort": None, "summary": None},
            "safety_identifier": None,
            "service_tier": "default",
            "store": body.store is not False,
            "temperature": opened.sampling.temperature,
            "top_logprobs": body.top_logprobs or 0,
            "top_p": opened.sampling.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": body.user,
            "session_id": opened.session_id,
            "system_fingerprint": self._fingerprint,
            **self._echo,
        }

    def _usage(self) -> Json:
        answer, prompt = self._opened.answers[0], self._opened.prompt_tokens
        return {
            "input_tokens": prompt,
            "input_tokens_details": {
                "cached_tokens": answer.cached_tokens,
                "cache_write_tokens": 0,  # nothing is written that would be paid for
            },
            "output_tokens": len(answer.ids),
            "output_tokens_details": {"reasoning_tokens": self._output.reasoning_tokens},
            "total_tokens": prompt + len(answer.ids),
        }
