"""Sessions in the URL, for clients that can set nothing but a base URL: ``/s/{session}/v1/...``."""

from __future__ import annotations

from urllib.parse import quote, unquote_to_bytes

from starlette.types import Scope

from rejoinder.gateway.identity import URL_SESSION

SESSION_PREFIX = "/s/"
_PREFIX = SESSION_PREFIX.encode()


def without_session(scope: Scope) -> Scope:
    """Return the scope of the same request below ``/v1/``, its session among the headers.

    A path of another form stays as it is: nothing is there.
    """
    # As the client wrote it, so that what is percent-encoded is part of the name.
    written = scope.get("raw_path") or quote(scope["path"]).encode()
    session, api, rest = written.removeprefix(_PREFIX).partition(b"/v1/")
    if not (written.startswith(_PREFIX) and session and api):
        return scope
    path = api + rest
    return {
        **scope,
        "path": unquote_to_bytes(path).decode(errors="replace"),
        "raw_path": path,
        "headers": [*scope["headers"], (URL_SESSION, unquote_to_bytes(session))],
    }
