"""Refusals, and their form on paths of no other dialect: OpenAI's ``{"error": {...}}``."""

from __future__ import annotations

import math
from collections.abc import Mapping

import orjson
from starlette.types import Send

from rejoinder.chat.messages import BadMessages
from rejoinder.errors import EngineBusy, EngineError, EngineTimeout, EngineUnavailable
from rejoinder.types import Fate

MAX_MESSAGE_CHARS = 2000
"""Messages quote what was wrong; a hostile value shall not come back as a whole."""
RETRY_AFTER_S = 1.0
"""What clients are told to wait at least, and where nothing better is known."""
SHUTTING_DOWN = "shutting_down"
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}

_PARAMS = {"context_length_exceeded": "messages", "model_not_found": "model"}
"""The field that an engine's refusal is about, by its code."""


class ApiError(Exception):
    """A refusal with everything its response needs."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        param: str | None = None,
        *,
        retry_after_s: float = RETRY_AFTER_S,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = _shortened(message)
        self.param = None if param is None else _shortened(param)
        self.retry_after_s = max(retry_after_s, RETRY_AFTER_S)

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.status in (408, 429, 503)

    def headers(self) -> dict[str, str]:
        """Return the headers beside the body; official clients obey ``x-should-retry``."""
        if self.status == 401:
            return {"www-authenticate": "Bearer"}
        if self.status == 415:
            return {"accept-encoding": "identity"}
        if not self.retryable:
            return {}
        headers = {"retry-after": str(math.ceil(self.retry_after_s)), "x-should-retry": "true"}
        if self.status == 408 or self.code == SHUTTING_DOWN:  # nothing more is read from it
            headers["connection"] = "close"
        return headers

    def body(self) -> bytes:
        """Return the JSON body in OpenAI's form."""
        default = "server_error" if self.status >= 500 else "invalid_request_error"
        error = {
            "message": self.message,
            "type": _TYPES.get(self.status, default),
            "param": self.param,
            "code": self.code,
        }
        return orjson.dumps({"error": error})


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else text[:MAX_MESSAGE_CHARS] + "…"


def from_engine(error: EngineError) -> ApiError:
    """Return an engine's error as the client should see it, status and code unchanged."""
    return ApiError(error.status, error.code, str(error) or error.code, _PARAMS.get(error.code))


class ShuttingDown(EngineUnavailable):
    """The gateway ends before an answer is complete; no failure of the engine."""

    code = SHUTTING_DOWN


def fate_of(error: EngineError) -> Fate:
    """Return what becomes of answers that break off with an error."""
    if isinstance(error, ShuttingDown):
        return Fate.PROCESS_KILLED
    if isinstance(error, EngineTimeout):
        return Fate.TIMED_OUT
    return Fate.ENGINE_FAILED if is_failure(error) else Fate.REFUSED


def is_failure(error: EngineError) -> bool:
    """Return whether an operator should hear of it, unlike of an end or of a client's mistake."""
    return isinstance(error, EngineBusy) or (
        error.status >= 500 and not isinstance(error, ShuttingDown)
    )


def from_messages(error: BadMessages) -> ApiError:
    """Return a fault in the messages."""
    return ApiError(400, "invalid_messages", str(error), error.param)


def timed_out(seconds: float) -> EngineTimeout:
    """Return the error of a request whose time is over."""
    return EngineTimeout(
        f"no complete answer within {seconds:g} s (gateway.request_timeout_s); the engine is "
        "overloaded or stuck"
    )


async def send_json(
    send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None
) -> None:
    """Send a whole JSON response."""
    lines = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    lines += [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})
