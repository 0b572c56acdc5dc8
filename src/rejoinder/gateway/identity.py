"""What a request says about its session and its kind, in headers or in its body.

Order of preference everywhere: header, body field, ``metadata`` entry. Without any of them a
request is a main turn of a session that is derived from its history, so a plain OpenAI client
trains without knowing of this system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rejoinder.gateway.body import ChatBody
from rejoinder.gateway.errors import ApiError
from rejoinder.types import TurnType

MAX_SESSION_CHARS = 256
_TRUE = frozenset({"1", "true", "yes", "on"})

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


def read_identity(headers: Headers, body: ChatBody) -> Identity:
    """Read session, turn type, end mark and retry mark.

    Raises:
        ApiError: 400, a session id that is no short string, or an unknown turn type.
    """
    metadata = body.metadata or {}
    return Identity(
        session=_session(headers, body),
        turn_type=_turn_type(
            _header(headers, b"x-turn-type") or body.turn_type or metadata.get("turn_type")
        ),
        done=_truth(_header(headers, b"x-session-done"))
        or bool(body.session_done)
        or _truth(metadata.get("session_done")),
        retried=_header(headers, b"x-stainless-retry-count") not in ("", "0"),
    )


def _header(headers: Headers, name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1").strip()


def _session(headers: Headers, body: ChatBody) -> str | None:
    named: object = (
        _header(headers, b"x-session-id")
        or body.session_id
        or (body.metadata or {}).get("session_id")
    )
    if named is None or named == "":
        return None
    if not isinstance(named, str) or len(named) > MAX_SESSION_CHARS:
        raise ApiError(
            400,
            "invalid_value",
            f"a session id is a string of at most {MAX_SESSION_CHARS} characters",
            "session_id",
        )
    return named


def _turn_type(value: object) -> TurnType:
    if value is None or value == "":
        return TurnType.MAIN
    try:
        return TurnType(str(value).strip().lower())
    except ValueError as error:
        raise ApiError(
            400, "invalid_value", f"turn type {value!r} is neither 'main' nor 'side'", "turn_type"
        ) from error


def _truth(value: object) -> bool:
    return str(value).strip().lower() in _TRUE if value is not None else False
