"""What a request says about its session and its kind, in headers, in its body or between the lines.

Order of preference everywhere: header, URL, body field, ``metadata`` entry, then the configured
rules for clients that say it nowhere. Without any of them a request is a main turn of a session
that is derived from its history, so a plain OpenAI client trains without knowing of this system.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rejoinder.chat.client_context import own_words
from rejoinder.config import MAX_OPENING_CHARS, GatewayConfig
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.headers import header_text
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.session_rules import MAX_SESSION_CHARS, find_session
from rejoinder.types import Message, TurnType

URL_SESSION = b":session"
"""Stands among the headers for the session in a URL (``/s/{session}/v1/...``), as bytes.

No client can send it: a header's name holds no colon.
"""
_TRUE = frozenset({"1", "true", "yes", "on"})
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)

Headers = Mapping[bytes, bytes]
"""Lower-case names."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Session and kind of one request."""

    session: str | None
    """What the client calls its session; None: derive it."""
    turn_type: TurnType
    done: bool
    """Close the session after this turn."""
    retried: bool
    """The client marks this request as its retry of an earlier one."""
    trace: bytes | None = None
    """[16] its W3C trace id: a hint that requests belong together, and no more."""
    session_by: str | None = None
    """Where the session's name was found; None: nowhere."""
    type_by: str = "default"
    """Where the turn type was found."""


def read_identity(headers: Headers, request: TurnRequest, config: GatewayConfig) -> Identity:
    """Read session, turn type, end mark, retry mark and trace.

    Raises:
        ApiError: 400, a session id that is no short string, or an unknown turn type.
    """
    session, session_by = _session(headers, request, config)
    turn_type, type_by = _turn_type(headers, request, config)
    return Identity(
        session=session,
        turn_type=turn_type,
        done=_truth(_header(headers, b"x-session-done"))
        or request.session_done
        or _truth(request.metadata.get("session_done")),
        retried=_header(headers, b"x-stainless-retry-count") not in ("", "0"),
        trace=_trace(headers),
        session_by=session_by,
        type_by=type_by,
    )


def _header(headers: Headers, name: bytes) -> str:
    value = headers.get(name)
    return header_text(value) if value else ""


def _url_session(headers: Headers) -> str:
    try:
        return headers.get(URL_SESSION, b"").decode()
    except UnicodeDecodeError as error:  # replaced, one name could pass for another
        text = "the session in the URL must be percent-encoded UTF-8"
        raise ApiError(400, "invalid_value", text, "session_id") from error


def _session(
    headers: Headers, request: TurnRequest, config: GatewayConfig
) -> tuple[str | None, str | None]:
    for where, named in (
        ("header X-Session-Id", _header(headers, b"x-session-id")),
        ("URL", _url_session(headers)),
        ("body session_id", request.session_id),
        ("metadata session_id", request.metadata.get("session_id")),
    ):
        if named is None or named == "":
            continue
        if not isinstance(named, str) or len(named) > MAX_SESSION_CHARS:
            raise ApiError(
                400,
                "invalid_value",
                f"a session id is a string of at most {MAX_SESSION_CHARS} characters",
                "session_id",
            )
        return named, where
    found = find_session(config.session_rules, headers, request)
    return (None, None) if found is None else (found[0], f"rule {found[1]}")


def _turn_type(
    headers: Headers, request: TurnRequest, config: GatewayConfig
) -> tuple[TurnType, str]:
    for where, value in (
        ("header X-Turn-Type", _header(headers, b"x-turn-type")),
        ("body turn_type", request.turn_type),
        ("metadata turn_type", request.metadata.get("turn_type")),
    ):
        if value is None or value == "":
            continue
        try:
            return TurnType(str(value).strip().lower()), where
        except ValueError as error:
            raise ApiError(
                400,
                "invalid_value",
                f"turn type {value!r} is neither 'main' nor 'side'",
                "turn_type",
            ) from error
    opening = _side_opening(request.messages, config.side_openings)
    if opening is not None:
        return TurnType.SIDE, f"opening {opening!r}"
    return request.usual_type, "default"


def _side_opening(messages: Sequence[Message], openings: tuple[str, ...]) -> str | None:
    """Return with which of the openings the last user message that says anything begins."""
    said = (own_words(one) for one in reversed(messages) if one.role == "user")
    begins = next(filter(None, said), "")[:MAX_OPENING_CHARS].lower()
    if not begins.startswith(openings):
        return None
    return next(opening for opening in openings if begins.startswith(opening))


def _trace(headers: Headers) -> bytes | None:
    """Return the trace id of a ``traceparent``; one that is malformed is no hint."""
    said = _header(headers, b"traceparent")
    match = _TRACEPARENT.fullmatch(said) if said else None
    id_ = b"" if match is None else bytes.fromhex(match.group(1))
    return id_ if any(id_) else None


def _truth(value: object) -> bool:
    return str(value).strip().lower() in _TRUE if value is not None else False
